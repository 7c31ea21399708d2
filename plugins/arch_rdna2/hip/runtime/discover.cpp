#include "discover.h"

#include <cstdlib>
#include <optional>
#include <vector>

#include "device_check.h"
#include "isa.h"

namespace turbo::hip {
namespace {

constexpr size_t kMostShown = 64;

// Set before the process started, or without effect: the runtime reads it when it is opened.
std::string override_note() {
  const char* value = std::getenv("HSA_OVERRIDE_GFX_VERSION");
  return value && *value ? std::string(", HSA_OVERRIDE_GFX_VERSION=") + std::string(value, strnlen(value, 32)) : "";
}

std::string gib(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (uint64_t{1} << 30));
  return text;
}

std::string in_short(const DeviceFacts& facts) {
  return facts.name + " (" + facts.isa + ", " + gib(facts.memory_total) + (facts.pci.empty() ? "" : ", " + facts.pci) + ")";
}

// Why the library cannot run on it; empty: it can be tried.
std::string obstacle(const DeviceFacts& facts, const turbo_code_object* objects, uint32_t n_objects) {
  if (facts.wave != 32) return "its waves have " + std::to_string(facts.wave) + " lanes; kernels are written for 32";
  if (candidate_objects(facts.isa, objects, n_objects).empty())
    return "no code object for " + facts.isa + ": there are " + isa_list(objects, n_objects);
  return {};
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  return text;
}

// What the option asks for.
class Wish {
 public:
  explicit Wish(const std::string& text) : text_(lower(text)) {
    // "7900" is part of a name; no machine has so many devices.
    if (text_.empty() || text_.size() > 2 || text_.find_first_not_of("0123456789") != std::string::npos) return;
    number_ = static_cast<uint32_t>(std::stoul(text_));
  }
  bool fits(const DeviceFacts& facts) const {
    return text_.empty() || text_ == "auto" || (number_ ? *number_ == facts.index : in(facts.name) || in(facts.isa) || in(facts.pci));
  }

 private:
  bool in(const std::string& name) const { return lower(name).find(text_) != std::string::npos; }
  const std::string text_;
  std::optional<uint32_t> number_;
};

bool better(const DeviceFacts& a, const DeviceFacts& b) {
  return a.integrated != b.integrated ? !a.integrated : a.memory_total > b.memory_total;
}

}  // namespace

DeviceFacts choose_device(Runtime& runtime, const std::string& wanted, const turbo_code_object* objects, uint32_t n_objects) {
  const Wish wish(wanted);
  const uint32_t n = runtime.device_count();
  std::optional<DeviceFacts> best;
  std::string all, why;
  bool any = false;
  for (uint32_t i = 0; i < n; ++i) {
    DeviceFacts facts = runtime.facts(i);
    const std::string named = "device " + std::to_string(i) + ", " + in_short(facts);
    all += (i ? "; " : "") + named;
    if (!wish.fits(facts)) continue;
    any = true;
    const std::string found = obstacle(facts, objects, n_objects);
    if (!found.empty()) why += (why.empty() ? "" : "; ") + named + ": " + found;
    else if (!best || better(facts, *best)) best = std::move(facts);
  }
  if (!any)
    throw Failure(TURBO_NOT_FOUND, "device '" + wanted.substr(0, kMostShown) + "': the " + runtime.platform() + " runtime has " + (n ? "only " + all : "none"),
                  "correct compute.device, or HIP_VISIBLE_DEVICES");
  if (!best) throw Failure(TURBO_UNSUPPORTED, why + " (" + runtime.versions() + override_note() + ")", "build turbo for this architecture, or use another tier");
  return *best;
}

std::string describe(Runtime& runtime, const DeviceFacts& chosen) {
  const uint32_t n = runtime.device_count();
  std::string text = in_short(chosen) + ", " + runtime.versions() + override_note();
  if (n > 1) text += ", device " + std::to_string(chosen.index) + " of " + std::to_string(n);
  for (uint32_t i = 0; i < n; ++i)
    if (i != chosen.index) text += "; device " + std::to_string(i) + ": " + in_short(runtime.facts(i));
  return text;
}

void probe_device(const Host& host, Probe& answer, std::unique_ptr<Runtime> (*make)(), const turbo_code_object* objects, uint32_t n_objects) {
  try {
    const std::unique_ptr<Runtime> runtime = make();
    answer.reason = describe(*runtime, choose_device(*runtime, host.option("device", "auto"), objects, n_objects));
    answer.score = 100;
  } catch (const Failure& failure) {
    answer.score = 0;
    answer.reason = failure.message;
  }
}

std::unique_ptr<Device> open_device(const Host& host, std::unique_ptr<Runtime> runtime, const turbo_code_object* objects, uint32_t n_objects) {
  const DeviceFacts facts = choose_device(*runtime, host.option("device", "auto"), objects, n_objects);
  const std::string where = facts.name + ", " + facts.isa + override_note() + ", " + runtime->versions();
  try {
    runtime->open(facts.index);
    auto device = std::make_unique<Device>(host, std::move(runtime), facts);
    check_device(*device, objects, n_objects);
    return device;
  } catch (const Failure& failure) {
    throw Failure(failure.code, where + ": " + failure.message, failure.hint);
  }
}

}  // namespace turbo::hip
