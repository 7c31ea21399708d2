#include "discover.h"

#include <cstdlib>
#include <optional>
#include <vector>

#include "device_check.h"
#include "isa.h"

namespace turbo::hip {
namespace {

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

bool better(const DeviceFacts& a, const DeviceFacts& b) {
  return a.integrated != b.integrated ? !a.integrated : a.memory_total > b.memory_total;
}

}  // namespace

DeviceFacts choose_device(Runtime& runtime, int64_t wanted, const turbo_code_object* objects, uint32_t n_objects) {
  const uint32_t n = runtime.device_count();
  if (wanted >= n)
    throw Failure(TURBO_NOT_FOUND, "device " + std::to_string(wanted) + ": the " + runtime.platform() + " runtime counts " + std::to_string(n) + " devices, from 0",
                  "correct the option 'device', or HIP_VISIBLE_DEVICES");
  std::optional<DeviceFacts> best;
  std::string why;
  for (uint32_t i = 0; i < n; ++i) {
    if (wanted >= 0 && i != static_cast<uint64_t>(wanted)) continue;
    DeviceFacts facts = runtime.facts(i);
    const std::string found = obstacle(facts, objects, n_objects);
    if (!found.empty()) why += (why.empty() ? "" : "; ") + ("device " + std::to_string(i) + ", " + in_short(facts)) + ": " + found;
    else if (!best || better(facts, *best)) best = std::move(facts);
  }
  if (!best) throw Failure(TURBO_UNSUPPORTED, why + " (" + runtime.versions() + override_note() + ")", "build turbo for this architecture, or use another tier");
  return *best;
}

std::string describe(Runtime& runtime, const DeviceFacts& chosen) {
  std::string text = in_short(chosen) + ", " + runtime.versions() + override_note();
  for (uint32_t i = 0; i < runtime.device_count(); ++i)
    if (i != chosen.index) text += "; device " + std::to_string(i) + ": " + in_short(runtime.facts(i));
  return text;
}

void probe_device(const Host& host, Probe& answer, std::unique_ptr<Runtime> (*make)(), const turbo_code_object* objects, uint32_t n_objects) {
  try {
    const std::unique_ptr<Runtime> runtime = make();
    answer.reason = describe(*runtime, choose_device(*runtime, host.option("device", int64_t{-1}), objects, n_objects));
    answer.score = 100;
  } catch (const Failure& failure) {
    answer.score = 0;
    answer.reason = failure.message;
  }
}

std::unique_ptr<Device> open_device(const Host& host, std::unique_ptr<Runtime> runtime, const turbo_code_object* objects, uint32_t n_objects) {
  const DeviceFacts facts = choose_device(*runtime, host.option("device", int64_t{-1}), objects, n_objects);
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
