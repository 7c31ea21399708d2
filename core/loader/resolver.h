// The work of resolve(), one object for each call. Private to the loader.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "loader/resolution.h"

namespace turbo::loader {

/// One slot to fill.
struct Need {
  std::string slot;              // "kv_codec:k"
  std::string kind;              // "kv_codec"
  std::string name;              // component name; empty: any of the kind
  std::optional<uint32_t> type;  // weight formats: must serve it
  std::string what;              // "kv_codec 'tq3'", for messages
  bool spare = false;            // options were meant for another of its slot: it takes what fits

  bool matches(const ManifestComponent& component) const;
};

/// Why a tier lost: one reason, and the slots that gave it.
struct Loss {
  std::string tier, why;
  std::vector<std::string> slots;
  bool absent = false;  // nothing is installed

  std::string text() const;
};

class Resolver {
 public:
  Resolver(const Request& request, Catalog& catalog, const Services& services);
  Result<Resolution> run();
  Report& report() { return state_->report; }

  Status check_drafters() const;

 private:
  using Candidates = std::vector<std::vector<Candidate>>;  // by need, best first

  // resolver_checks.cpp: the request against what is installed
  Status check_request();
  Status check_tiers();
  Status check_name(const std::string& kind, const std::string& name) const;
  const PluginEntry* unread_plugin() const;
  Status check_prefer() const;
  Status check_option_slots() const;
  Status check_shared_options(const std::string& kind, const std::vector<const turbo_component*>& chosen) const;

  // resolver_candidates.cpp
  Result<std::vector<ComponentRef>> installed(const Need& need, uint32_t tier);
  Status apply_prefer(const Need& need, uint32_t tier, std::vector<ComponentRef>& refs);
  std::vector<Candidate> usable(const Need& need, const std::vector<ComponentRef>& refs);
  std::optional<Candidate> probe(const Need& need, const ComponentRef& ref);
  Status bind_options(const Need& need, Candidate& candidate) const;
  Status with_side_hint(const Need& need, const Status& status) const;
  Status unknown_option(const std::string& slot, const std::string& key, std::vector<std::string> known) const;

  // resolver_device.cpp: the pack's device for the kernels of the others
  Result<bool> share_device(const Instance& pack, const Candidates& candidates, uint32_t tier, Status& pack_status);
  Instance* instance_of(const Need& need) const;

  // resolver.cpp
  /// True when the tier serves; false when it lost, with the reasons in losses_.
  Result<bool> try_tier(uint32_t tier);
  Result<bool> build(const Candidates& candidates, uint32_t tier);
  Result<bool> build_format(const Need& need, const std::vector<Candidate>& candidates);
  Result<bool> build_pack(const Candidates& candidates, uint32_t tier);
  Result<bool> build_first(const Need& need, const std::vector<Candidate>& candidates, std::unique_ptr<Instance>& slot);
  Status accept_pack(const Candidate& candidate, std::unique_ptr<Instance>& instance);
  void give_up(const Candidates& candidates, uint32_t tier);
  void choose(const Need& need, const std::vector<Candidate>& candidates, size_t index);
  void list_outranked();
  void list_ops(const Candidate& pack);
  Status resolve_drafters();
  Result<size_t> resolve_drafter(const std::string& name, bool inner);
  Status resolve_spare_codecs();
  Status no_tier() const;

  /// As reject, and a line in the log: something that should have worked did not.
  void reject_failed(const Need& need, const Candidate& candidate, const Status& status);
  void reject(const std::string& slot, const std::string& plugin, uint32_t tier, std::string reason);
  /// `absent`: nothing is installed for the need, which installing a plugin would mend.
  void lose(const Need& need, uint32_t tier, const std::string& why, bool absent = false);

  const Request& request_;
  Catalog& catalog_;
  std::vector<uint32_t> tiers_;
  std::vector<Need> needs_;          // of the compute tier: pack first, then formats, codecs, sampler
  std::vector<Loss> losses_;         // of the tier being tried
  std::vector<Loss> all_losses_;
  bool installing_helps_ = true;     // every tier so far lacks a plugin
  std::vector<std::string> experimental_;  // warnings of what is chosen so far in this tier
  std::unique_ptr<Resolution::State> state_;
};

}  // namespace turbo::loader
