#include "loader/library.h"

#include <dlfcn.h>
#include <turbo/abi/draft/arch_pack.h>
#include <turbo/abi/drafter.h>
#include <turbo/abi/sampler.h>
#include <turbo/abi/weight_format.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>

#include "loader/text.h"

namespace turbo::loader {
namespace {

// Sizes of the structs as of ABI 1.0: nothing smaller can be read, nothing this large is meant.
constexpr uint32_t plugin_bytes_1_0 = offsetof(turbo_plugin, components) + sizeof(void*);
constexpr uint32_t component_bytes_1_0 = offsetof(turbo_component, query_interface) + sizeof(void*);
constexpr uint32_t absurd_bytes = 4096;
constexpr uint32_t max_components = 256;

std::string host_abi() { return fmt::format("{}.{}", TURBO_ABI_MAJOR, TURBO_ABI_MINOR); }

std::string hint_for_load_failure(uint32_t tier) {
  switch (tier) {
    case TURBO_TIER_HIP: return "install the HIP runtime (ROCm), or use the generic or cpu tier";
    case TURBO_TIER_GENERIC: return "install a Vulkan 1.2 driver and loader, or use the cpu tier";
    default: return "reinstall the plugin for this machine";
  }
}

// Opened libraries, kept for the life of the process on purpose: plugin code may still run at exit. Catalogs of several
// threads meet here, so the map has a lock; what it holds never moves and never goes.
class MappedLibraries {
 public:
  static MappedLibraries& instance() {
    static auto* libraries = new MappedLibraries;
    return *libraries;
  }
  boost::dll::shared_library* find(const std::string& file) {
    const std::lock_guard lock(mutex_);
    const auto found = libraries_.find(file);
    return found == libraries_.end() ? nullptr : &found->second;
  }
  // When another thread was faster, its handle stays and the new one is let go: both name one mapping.
  boost::dll::shared_library* keep(const std::string& file, boost::dll::shared_library library) {
    const std::lock_guard lock(mutex_);
    return &libraries_.try_emplace(file, std::move(library)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, boost::dll::shared_library> libraries_;
};

Result<const turbo_component*> check_component(const turbo_plugin& plugin, uint32_t index) {
  const auto* base = reinterpret_cast<const char*>(plugin.components);
  const auto* component = reinterpret_cast<const turbo_component*>(base + size_t{index} * plugin.component_bytes);
  const auto refuse = [&](std::string_view why) { return error(Code::unsupported, "component {}: {}", index, why); };
  if (component->struct_size < component_bytes_1_0 || component->struct_size > plugin.component_bytes)
    return refuse(fmt::format("struct_size: expected {} to {} but found {}", component_bytes_1_0,
                              plugin.component_bytes, component->struct_size));
  if (!component->kind || !component->name) return refuse("kind and name must not be null");
  const std::string kind = clean_c_text(component->kind, 64), name = clean_c_text(component->name, 64);
  if (!is_component_name(name))
    return refuse(fmt::format("name: expected 1 to 32 characters of [a-z0-9_] but found '{}'", name));
  const auto& kinds = component_kinds();
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    return refuse(fmt::format("kind: expected one of {} but found '{}'", fmt::join(kinds, ", "), kind));
  if (component->tier < TURBO_TIER_CPU || component->tier > TURBO_TIER_HIP)
    return refuse(fmt::format("{} '{}': tier: expected 1 to 3 but found {}", kind, name, component->tier));
  std::vector<std::string_view> missing;
  if (!component->probe) missing.push_back("probe");
  if (!component->create) missing.push_back("create");
  if (!component->destroy) missing.push_back("destroy");
  if (!component->query_interface) missing.push_back("query_interface");
  if (!missing.empty())
    return refuse(fmt::format("{} '{}': required calls are null: {}", kind, name, fmt::join(missing, ", ")));
  return component;
}

Status check_header(const turbo_plugin* plugin) {
  if (!plugin)
    return Status(Code::unsupported,
                  fmt::format("turbo_plugin_query answered null: the plugin does not serve ABI {}", host_abi()),
                  "install the build of the plugin that was made for this turbo");
  const uint32_t size = plugin->struct_size;
  if (size < plugin_bytes_1_0 || size > absurd_bytes)
    return Status(
        Code::unsupported,
        fmt::format("turbo_plugin.struct_size: expected {} to {} but found {}", plugin_bytes_1_0, absurd_bytes, size),
        "rebuild the plugin against the SDK");
  if (plugin->abi_major != TURBO_ABI_MAJOR)
    return Status(
        Code::unsupported,
        fmt::format("built for ABI {}.{}, but this turbo has ABI {}", plugin->abi_major, plugin->abi_minor, host_abi()),
        "install the build of the plugin that was made for this turbo");
  if (plugin->abi_minor_host > TURBO_ABI_MINOR)
    return Status(Code::unsupported,
                  fmt::format("needs a host of ABI {}.{} or later, but this turbo has ABI {}", plugin->abi_major,
                              plugin->abi_minor_host, host_abi()),
                  "install a newer turbo or an older plugin");
  if (!plugin->id || !plugin->version || !plugin->components)
    return error(Code::unsupported, "turbo_plugin: id, version and components must not be null");
  if (plugin->n_components == 0 || plugin->n_components > max_components)
    return error(Code::unsupported, "n_components: expected 1 to {} but found {}", max_components,
                 plugin->n_components);
  if (plugin->component_bytes < component_bytes_1_0 || plugin->component_bytes > absurd_bytes ||
      plugin->component_bytes % alignof(turbo_component) != 0)
    return error(Code::unsupported, "component_bytes: expected {} to {} but found {}", component_bytes_1_0,
                 absurd_bytes, plugin->component_bytes);
  return Status::ok();
}

struct RequiredMember {
  const char* name;
  size_t offset;
  bool every_tier;  // else only where the host runs it: the cpu tier
};

struct InterfaceSpec {
  const char* kind;
  const char* id;
  uint32_t bytes;  // of the table as first published
  std::vector<RequiredMember> members;
};

#define MEMBER(table, name, every_tier) \
  RequiredMember { #name, offsetof(table, name), every_tier }

const std::vector<InterfaceSpec>& interfaces() {
  using F = turbo_weight_format;
  using C = turbo_kv_codec;
  using D = turbo_drafter;
  using A = turbo_arch_pack;
  static const std::vector<InterfaceSpec> specs{
      {TURBO_KIND_WEIGHT_FORMAT,
       TURBO_WEIGHT_FORMAT_1,
       offsetof(F, matmul) + sizeof(void*),
       {MEMBER(F, types, true), MEMBER(F, packed_size, true), MEMBER(F, repack, true), MEMBER(F, decode_rows, false),
        MEMBER(F, activation_id, false), MEMBER(F, activation_bytes, false), MEMBER(F, prepare_row, false),
        MEMBER(F, matmul, false)}},
      {TURBO_KIND_KV_CODEC,
       TURBO_KV_CODEC_DRAFT,
       offsetof(C, fingerprint) + sizeof(void*),
       {MEMBER(C, layout, true), MEMBER(C, append, false), MEMBER(C, prepare_query, false), MEMBER(C, qk_scores, false),
        MEMBER(C, pv_accumulate, false), MEMBER(C, finish_output, false), MEMBER(C, move_row, false),
        MEMBER(C, decode_row, false), MEMBER(C, fingerprint, true)}},
      {TURBO_KIND_DRAFTER,
       TURBO_DRAFTER_1,
       offsetof(D, restore) + sizeof(void*),
       {MEMBER(D, needs, true), MEMBER(D, open, true), MEMBER(D, close, true), MEMBER(D, observe, true),
        MEMBER(D, poll, true)}},
      {TURBO_KIND_SAMPLER, TURBO_SAMPLER_1, sizeof(turbo_sampler), {MEMBER(turbo_sampler, sample, true)}},
      {TURBO_KIND_ARCH_PACK,
       TURBO_ARCH_PACK_DRAFT,
       offsetof(A, plan_explain) + sizeof(void*),
       {MEMBER(A, device, true),       MEMBER(A, supports, true),     MEMBER(A, self_test, true),
        MEMBER(A, weight_load, true),  MEMBER(A, weight_bytes, true), MEMBER(A, weight_in_place, true),
        MEMBER(A, weight_free, true),  MEMBER(A, kv_bytes, true),     MEMBER(A, kv_create, true),
        MEMBER(A, kv_free, true),      MEMBER(A, kv_pack, true),      MEMBER(A, kv_copy, true),
        MEMBER(A, kv_move_row, true),  MEMBER(A, kv_read, true),      MEMBER(A, kv_write, true),
        MEMBER(A, table_create, true), MEMBER(A, table_free, true),   MEMBER(A, compile, true),
        MEMBER(A, plan_bytes, true),   MEMBER(A, plan_free, true),    MEMBER(A, run, true),
        MEMBER(A, plan_buffer, true),  MEMBER(A, plan_explain, true)}},
  };
  return specs;
}
#undef MEMBER

}  // namespace

Result<PluginView> check_plugin(const turbo_plugin* plugin) {
  TURBO_RETURN_IF_ERROR(check_header(plugin));
  PluginView view{
      clean_c_text(plugin->id, 128), clean_c_text(plugin->version, 64), plugin->abi_major, plugin->abi_minor, {}};
  if (!is_plugin_id(view.id)) return error(Code::unsupported, "id: expected reverse DNS but found '{}'", view.id);
  for (uint32_t i = 0; i < plugin->n_components; ++i) {
    TURBO_ASSIGN(const turbo_component* component, check_component(*plugin, i));
    for (const turbo_component* known : view.components)
      if (known->tier == component->tier && std::string_view(known->kind) == component->kind &&
          std::string_view(known->name) == component->name)
        return error(Code::unsupported, "component {} '{}' of tier {} is defined twice", component->kind,
                     component->name, tier_name(component->tier));
    view.components.push_back(component);
  }
  return view;
}

Result<PluginView> open_library(const std::filesystem::path& file, uint32_t tier_hint, const StageFn& stage) {
  const std::string shown = clean_text(file.string(), 1024);
  boost::dll::shared_library* mapped = MappedLibraries::instance().find(file.string());
  if (stage) stage("load");
  if (!mapped) {
    boost::dll::shared_library library;
    boost::system::error_code failed;
    std::string why;
    try {
      library.load(boost::filesystem::path(file.string()),
                   boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local, failed);
      if (failed || !library.is_loaded()) {
        const char* text = ::dlerror();
        why = text ? clean_c_text(text) : clean_text(failed.message());
      }
    } catch (const std::exception& exception) {
      why = fmt::format("its initialiser threw: {}", clean_c_text(exception.what()));
    } catch (...) {
      why = "its initialiser threw";
    }
    if (!why.empty())
      return Status(Code::unsupported, fmt::format("{}: cannot load the library: {}", shown, why),
                    hint_for_load_failure(tier_hint));
    mapped = MappedLibraries::instance().keep(file.string(), std::move(library));
  }
  if (!mapped->has(TURBO_PLUGIN_QUERY_SYMBOL))
    return Status(Code::unsupported,
                  fmt::format("{}: symbol {} is missing: not a turbo plugin", shown, TURBO_PLUGIN_QUERY_SYMBOL),
                  "export it with TURBO_PLUGIN of the SDK");
  if (stage) stage("query");
  const turbo_plugin* plugin = nullptr;
  try {
    const auto& query = mapped->get<const turbo_plugin*(uint32_t, uint32_t)>(TURBO_PLUGIN_QUERY_SYMBOL);
    plugin = query(TURBO_ABI_MAJOR, TURBO_ABI_MINOR);
  } catch (...) {
    return error(Code::internal, "{}: turbo_plugin_query threw an exception", shown);
  }
  Result<PluginView> view = check_plugin(plugin);
  if (!view) return view.status().with_context(shown);
  return view;
}

Status check_agreement(const PluginView& plugin, const Manifest& manifest, const ManifestLibrary& library) {
  const auto differs = [](std::string_view what, std::string_view in_manifest, std::string_view in_library) {
    return Status(Code::corrupt_input,
                  fmt::format("{}: the manifest says '{}' but the library says '{}'", what, in_manifest, in_library),
                  "reinstall the plugin: its manifest and library are not of the same build");
  };
  if (plugin.id != manifest.id) return differs("id", manifest.id, plugin.id);
  if (plugin.version != manifest.version) return differs("version", manifest.version, plugin.version);
  if (plugin.abi_minor != manifest.abi_minor)
    return differs("abi", fmt::format("{}.{}", manifest.abi_major, manifest.abi_minor),
                   fmt::format("{}.{}", plugin.abi_major, plugin.abi_minor));
  std::vector<std::string> listed, built;
  for (const ManifestComponent& c : library.components)
    listed.push_back(fmt::format("{}:{}:{}", c.kind, c.name, tier_name(c.tier)));
  for (const turbo_component* c : plugin.components)
    built.push_back(fmt::format("{}:{}:{}", c->kind, c->name, tier_name(c->tier)));
  std::sort(listed.begin(), listed.end());
  std::sort(built.begin(), built.end());
  if (listed != built)
    return differs("components", fmt::format("{}", fmt::join(listed, ", ")), fmt::format("{}", fmt::join(built, ", ")));
  return Status::ok();
}

Result<const void*> checked_interface(const turbo_component& component) {
  const std::string_view kind = component.kind;
  const auto& specs = interfaces();
  const auto spec = std::find_if(specs.begin(), specs.end(), [&](const InterfaceSpec& s) { return kind == s.kind; });
  if (spec == specs.end())
    return error(Code::unsupported, "kind '{}' has no interface", clean_c_text(component.kind, 64));
  const char* table = nullptr;
  try {
    table = static_cast<const char*>(component.query_interface(spec->id));
    if (component.query_interface("turbo.no_such_interface/0") != nullptr)
      return error(Code::unsupported, "query_interface answers ids it cannot know");
  } catch (...) {
    return error(Code::internal, "query_interface threw an exception");
  }
  if (!table) return error(Code::unsupported, "interface {} is missing", spec->id);
  uint32_t size;
  std::memcpy(&size, table, sizeof size);
  if (size < spec->bytes || size > absurd_bytes)
    return error(Code::unsupported, "{}: struct_size: expected {} to {} but found {}", spec->id, spec->bytes,
                 absurd_bytes, size);
  std::vector<std::string_view> missing;
  for (const RequiredMember& member : spec->members) {
    const void* pointer;
    std::memcpy(&pointer, table + member.offset, sizeof pointer);
    if (!pointer && (member.every_tier || component.tier == TURBO_TIER_CPU)) missing.push_back(member.name);
  }
  if (!missing.empty())
    return error(Code::unsupported, "{}: required calls are null: {}", spec->id, fmt::join(missing, ", "));
  return static_cast<const void*>(table);
}

Status call_plugin(const std::string& what, const std::function<turbo_status(turbo_error*)>& call) {
  turbo_error details{};
  details.struct_size = sizeof details;
  turbo_status status;
  try {
    status = call(&details);
  } catch (const std::exception& exception) {
    return error(Code::internal, "{}: threw an exception: {}", what, clean_c_text(exception.what(), 256));
  } catch (...) {
    return error(Code::internal, "{}: threw an exception", what);
  }
  if (status == TURBO_OK) return Status::ok();
  std::string message = clean_c_text(details.message, sizeof details.message);
  if (status < TURBO_OK || status > TURBO_INTERNAL) {
    message = fmt::format("unknown status {}{}{}", status, message.empty() ? "" : ": ", message);
    status = TURBO_INTERNAL;
  }
  if (message.empty()) message = code_name(static_cast<Code>(status));
  return Status(static_cast<Code>(status), fmt::format("{}: {}", what, message),
                clean_c_text(details.hint, sizeof details.hint));
}

}  // namespace turbo::loader
