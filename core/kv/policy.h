// What the core decides about a KV cache beside its codecs: centers of keys, the check of every layer at load, and
// layers that are kept in more bits. Read from kv.options; the other options there are the codec's. Pure.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace turbo::kv {

struct CodecPolicy {
  bool center = true;                 // subtract the mean key of every head, where the codec can
  std::filesystem::path center_file;  // the means come from here; empty: from the fixed text
  bool self_check = true;             // measure each layer's attention at load; with few bits, promote what suffers
  std::optional<uint32_t> boundary;   // first and last layers that are always promoted; none: as the self-check finds
  std::string promote_k = "q8";       // K of a promoted layer
  std::string promote_v;              // V of a promoted boundary layer
  bool names_promotions = false;      // one of the two was given: it must be one even where nothing is promoted
  bool exact_prefill = false;         // rows of a prompt's chunk read each other's keys unpacked
};

/// Takes the policy's keys out of kv.options. `v` names the V codec: its family decides what promoted layers use when
/// promote_v is not given (tq2 and tq3: tq4, rq3_planar: rq4_planar, rq3_iso: rq4_iso; others: q8).
/// invalid_argument: a value that no key takes.
Result<CodecPolicy> take_policy(std::map<std::string, std::string>& options, const std::string& v);

/// The keys that take_policy takes.
const std::vector<std::string>& policy_keys();

/// `options` of one side, called `name` ("kv.k_options"), are for its codec alone. invalid_argument: a key of the policy.
Status refuse_policy_keys(const std::map<std::string, std::string>& options, const std::string& name);

}  // namespace turbo::kv
