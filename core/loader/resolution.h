// What a Resolution holds. Private to the loader.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "loader/held_log.h"
#include "loader/instance.h"
#include "loader/resolve.h"
#include "loader/tree_ops.h"

namespace turbo::loader {

/// A component that was opened and probed for a slot.
struct Candidate {
  ComponentRef ref;
  const turbo_component* component = nullptr;
  ProbeOutcome probe;
  OptionValues options;
  Status option_status;  // a user's mistake, raised only when this candidate is taken
  std::vector<std::filesystem::path> files;
};

/// A drafter of the composition: the one that the engine gets, or an inner one.
struct DrafterPart {
  std::string name, slot;
  std::vector<size_t> over;           // places of its inner drafters in State::drafters
  std::vector<Candidate> candidates;  // best first, not created yet
  std::unique_ptr<Instance> instance;
  InnerDrafters inner;                // what its host offers it
};

struct Resolution::State {
  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Everything down, the drafter first and the formats last.
  void stop_all();
  void destroy_all();
  /// Every format, codec, spare codec and sampler that was created.
  std::vector<Instance*> clients() const;
  void detach_all();
  Report::Slot& slot(const std::string& name);

  Services services;
  uint32_t compute_threads = 1;
  uint32_t tier = 0;
  turbo_device_info device{};
  const turbo_device* shared_device = nullptr;  // the pack's, for kernels of other libraries; null: it offers none
  Registry registry;
  const turbo_host_program* program = nullptr;
  std::shared_ptr<std::atomic<bool>> program_asked = std::make_shared<std::atomic<bool>>(false);
  // While a drafter is tried.
  struct Trial {
    HeldLog log;
    std::shared_ptr<spdlog::logger> usual_log;
    Report report;  // before it
  };
  std::unique_ptr<Trial> trial;

  std::map<const ManifestComponent*, std::unique_ptr<Instance>> formats;  // one instance serves all its types
  std::unique_ptr<Instance> codecs[2];
  std::map<std::string, std::unique_ptr<Instance>> spare_codecs[2];  // by side, then component name
  std::unique_ptr<Instance> sampler, pack;
  TreeOps tree_ops = loader::choose_tree_ops({});
  std::vector<std::unique_ptr<DrafterPart>> drafters;  // inner ones before those over them; the last is the engine's
  Report report;

  Instance* drafter() const { return drafters.empty() ? nullptr : drafters.back()->instance.get(); }
  void choose_tree_ops();
  /// An interface of a format's or codec's component, for the registry.
  const void* interface_of(const void* instance, const char* id) const;
  void stop_drafters();
  void destroy_drafters();
  Status open_part(DrafterPart& part);
};

/// "org.example.mine/name".
std::string instance_label(const ComponentRef& ref);
Report::Chosen chosen_of(const Candidate& candidate);
/// Create with the host services that every kind gets.
Result<std::unique_ptr<Instance>> create_instance(const Candidate& candidate, const Resolution::State& state,
                                                  const Registry* registry, const turbo_host_program* const* program,
                                                  const InnerDrafters* inner = nullptr);

}  // namespace turbo::loader
