// Resolution: which plugin serves each slot of a run, decided once, at load time, and explained.
//
// The compute tier is chosen jointly: the first tier of the request's list where an arch pack, a weight format for
// every weight type, both KV codecs and the sampler exist, load, probe above 0, can be created, and where the pack
// passes its self-test. Inside a tier the highest score wins, then the order of plugin ids. The drafter is resolved
// apart: on the chosen tier, a later one of the list, or the cpu (the host is always there). Whatever lost is in the
// report with its reason. [load] only; the returned tables have their own thread rules.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/abi/drafter.h>
#include <turbo/abi/sampler.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "loader/catalog.h"
#include "loader/host.h"

namespace turbo::loader {

struct WeightType {
  uint32_t number = 0;  // GGUF
  std::string name;     // "q1_0"
};

struct Request {
  std::vector<std::string> tiers{"hip", "generic", "cpu"};  // best first
  std::optional<std::string> require;                       // this tier or an error
  std::vector<WeightType> weight_types;                     // of every file that will be loaded
  std::string kv_k = "f16", kv_v = "f16";
  std::vector<std::string> spare_codecs[2];  // by side: what single layers may use instead, where it can be had
  std::string drafter = "off";
  /// Drafters that work over others: name -> the inner ones, in order. No name may occur twice.
  std::map<std::string, std::vector<std::string>> drafter_over;
  std::string sampler = "standard";
  std::vector<std::filesystem::path> plugin_paths;
  std::map<std::string, std::string> prefer;  // "kind:name" -> plugin id
  bool allow_unsafe = false;
  /// By slot: "arch_pack", "sampler", "drafter", "drafter:<name>" of inner ones, "kv_codec:k", "kv_codec:v", "weight_format:<type name>". "kv_codec"
  /// and "weight_format" speak to all of their kind: each key must be known to at least one that is chosen. A slot's
  /// own options go before those.
  std::map<std::string, OptionTexts> options;
  /// By slot: what is said to a component that has such an option, and to no other.
  std::map<std::string, OptionTexts> options_if_known;
  /// How messages speak of a slot's options, where the user knows them under another name.
  struct OptionWords {
    std::string name;               // "kv.options"
    std::vector<std::string> more;  // keys that the caller has taken out of them before
  };
  std::map<std::string, OptionWords> option_words;
  /// By slot: files and folders that the component may read beside its own folder and the files its options name.
  std::map<std::string, std::vector<std::filesystem::path>> files;
  const turbo_model_facts* model = nullptr;  // null: unknown
  uint32_t compute_threads = 1;
};

/// The catalog settings of this process with the request's plugin paths.
CatalogSettings catalog_settings(const Request& request);

/// The table of `turbo plan`.
struct Report {
  struct Chosen {
    std::string plugin, version, component, tier;
    int32_t score = 0;
  };
  struct Rejected {
    std::string plugin;  // empty: there is none
    std::string tier, reason;
  };
  struct Slot {
    std::string slot;
    std::optional<Chosen> chosen;
    std::vector<Rejected> rejected;
  };
  struct Device {
    std::string name, isa;
    uint64_t memory_bytes = 0;
    uint32_t threads = 0;
  };
  std::string tier;  // empty: none
  std::optional<Device> device;
  std::vector<Slot> slots;
  std::vector<std::string> warnings;

  /// {tier, device, slots, warnings} of `turbo plan --json`.
  nlohmann::json json() const;
  /// The aligned table, and why each other candidate lost.
  std::string text() const;
};

/// A function table and the instance that goes first in its calls; null table: nothing there.
template <typename Table>
struct Component {
  const Table* table = nullptr;
  void* self = nullptr;
  explicit operator bool() const { return table != nullptr; }
};

struct TreeOps;

/// What a run works with. Movable. Taking it down stops everything, then destroys in the reverse order of creation;
/// libraries stay mapped.
class Resolution {
 public:
  struct State;
  explicit Resolution(std::unique_ptr<State> state);
  Resolution(Resolution&&) noexcept;
  Resolution& operator=(Resolution&&) noexcept;
  ~Resolution();

  uint32_t tier() const;
  const turbo_device_info& device() const;
  Component<turbo_arch_pack> arch_pack() const;
  Component<turbo_weight_format> weight_format(uint32_t type) const;
  Component<turbo_kv_codec> kv_codec(uint32_t side) const;  // TURBO_KV_SIDE_*
  /// A spare codec of the request; empty when none serves under that name in this tier.
  Component<turbo_kv_codec> spare_codec(uint32_t side, const std::string& name) const;
  /// From the next KV pool on, the layer's codec is this spare one ("": the side's own again).
  Status use_codec(uint32_t side, uint32_t layer, const std::string& name);
  /// Run `make_pool` while layers [0, n_layers) of both sides are kept in the spare codec `name` (of a side that has it),
  /// for the pool of another model; then everything is as it was.
  Status with_codec(const std::string& name, uint32_t n_layers, const std::function<Status()>& make_pool);
  Component<turbo_sampler> sampler() const;
  /// Tree ops of the tier, each proven on known trees; the host's before start.
  const TreeOps& tree_ops() const;
  /// Empty until open_drafter has answered ok, and when the drafter is off.
  Component<turbo_drafter> drafter() const;

  /// Start formats, codecs, the pack and the sampler. Once, before weights are loaded.
  Status start();
  /// Create and start the drafter, once the target is loaded; `program` is what turbo.host.program/draft3 gives (null:
  /// not offered) and outlives the resolution. A candidate that fails makes way for the next; a composition goes on
  /// without an inner drafter of which all failed, as long as it has one. Ok when the drafter is
  /// off or nothing could serve it at resolve time; an error when all candidates failed now: the run goes on without.
  Status open_drafter(const turbo_host_program* program);
  /// The same before the target is loaded, so that what only the user can correct is known first: `program` answers what
  /// needs no weights. What drafters log is held back, and nothing is final until keep_drafter or drop_drafter.
  Status try_drafter(const turbo_host_program* program);
  /// Whether one of the drafters asked for the program service, whose answers change with the weights.
  bool drafter_asked_for_program() const;
  /// What was tried is the drafter: the next open_drafter only gives it the program service.
  void keep_drafter();
  /// What was tried is closed again. The report stays as it has become, with what drafters warned of, or is as before.
  void drop_drafter(bool keep_report);
  /// Stop and destroy the drafter: before the pools, weights and plans that it may hold are freed.
  void close_drafter();
  /// Stop everything; calls of the tables end before this. The destructor does it too.
  void stop();

  const Report& report() const;
  nlohmann::json explain_json() const;
  std::string explain_text() const;
  std::map<std::string, uint64_t> memory_by_tag() const;

 private:
  std::unique_ptr<State> state_;
};

/// The drafters of a request exist, and their composition is one. Part of resolve; alone for whoever must say this first.
Status check_drafters(const Request& request, Catalog& catalog);

/// Resolve a request against a catalog that was scanned for it. Services outlive the resolution.
/// Errors: invalid_argument for what the user must correct (unknown names, options, duplicates without `prefer`),
/// unsupported when no tier, or not the required one, can serve; then `report`, when given, still holds every reason.
Result<Resolution> resolve(const Request& request, Catalog& catalog, const Services& services, Report* report = nullptr);

}  // namespace turbo::loader
