// turbo inspect: header facts of a model file, and the memory it will need.
#include <algorithm>

#include "base/checked.h"
#include "base/human.h"
#include "cli/commands.h"
#include "model/files/summary.h"
#include "model/files/weight_check.h"
#include "profile/keys.h"

namespace turbo::cli {
namespace {

// Without a profile or settings the answer is about the file alone, and no plugin is looked at.
bool has_settings(const Arguments& arguments) { return arguments.profile || !arguments.overrides.empty(); }

std::string codec_name(const profile::Profile& profile) {
  return profile.kv.k == profile.kv.v ? profile.kv.k : profile.kv.k + "/" + profile.kv.v;
}

// Adds the rows about memory, and what `token` says of them. Only settings that cannot be right are errors: a file may be looked at on a machine that
// cannot run it, and then the figures that need a plugin are left out.
Status add_memory(nlohmann::ordered_json& json, engine::KvTokenBytes& token, const profile::Profile& profile, const model::ModelConfig& config, uint64_t tensor_bytes,
                  bool settings) {
  // Two bytes for each element of K and V: the f16 cache that profiles use unless they say otherwise.
  const uint64_t f16 = uint64_t{2} * config.n_layers * config.n_kv_heads * (config.head_dim_k + config.head_dim_v);
  json["context_length"] = config.context_length;
  json["kv_bytes_per_token_f16"] = f16;
  uint64_t per_token = f16, per_sequence = 0;
  if (settings) {
    engine::LoadStage stage = engine::LoadStage::model;
    const Result<engine::KvTokenBytes> found = engine::kv_bytes_per_token(profile, &stage);
    if (!found && exit_code_of(found.status(), stage) == kUsage) return found.status();
    if (found) {
      per_token = found->bytes;
      per_sequence = found->bytes_per_sequence;
      json["kv_bytes_per_sequence"] = per_sequence;
      json["kv_self_check_may_promote"] = found->may_promote;
      json["kv_bytes_per_token_promoted"] = found->bytes_promoted;
      token = *found;
    }
    else if (codec_name(profile) != "f16") {
      json["memory_unknown"] = found.status().message();
      return Status::ok();
    }
  }
  json["kv_codec"] = settings ? codec_name(profile) : "f16";
  json["kv_bytes_per_token"] = per_token;
  json["memory_at_context"] = nlohmann::ordered_json::array();
  const uint64_t asked = settings && profile.model.context > 0 ? static_cast<uint64_t>(profile.model.context) : 0;
  for (const uint64_t context : asked ? std::vector<uint64_t>{asked} : std::vector<uint64_t>{2048, 8192, 32768}) {
    const auto cache = checked_mul(context, per_token);
    const auto bytes = cache ? checked_add(tensor_bytes + per_sequence, *cache) : std::nullopt;
    if (bytes && (asked || context <= config.context_length)) json["memory_at_context"].push_back({{"context", context}, {"bytes", *bytes}});
  }
  return Status::ok();
}

// A draft model that the settings name: what it adds, without loading anything.
Status add_draft_model(nlohmann::ordered_json& json, const profile::Profile& profile) {
  if (!profile::find_member(profile.drafter, &profile::DrafterFacts::whole_model)) return Status::ok();
  TURBO_RETURN_IF_ERROR(profile::check_drafter_weights(profile.drafter));
  TURBO_ASSIGN(const auto file, model::ModelFile::open(profile.drafter.model));
  TURBO_ASSIGN(const model::ModelConfig config, model::read_config(*file));
  uint64_t bytes = 0;
  for (const model::Tensor& tensor : file->tensors()) bytes += tensor.bytes;
  json["draft_model"] = {{"path", file->path().string()},
                         {"weights_bytes", bytes},
                         {"kv_bytes_per_token", uint64_t{2} * config.n_layers * config.n_kv_heads * (config.head_dim_k + config.head_dim_v)}};
  return Status::ok();
}

}  // namespace

int run_inspect(const Arguments& arguments) {
  int exit_code = kOk;
  std::optional<profile::Profile> profile = profile::Profile{};
  if (has_settings(arguments)) profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  // The file itself or, as for other commands, --model.
  const bool by_option = std::any_of(arguments.overrides.begin(), arguments.overrides.end(), [](const profile::Override& o) { return o.key_path == "model.path"; });
  if (arguments.positional.size() + by_option != 1)
    return fail(Status(Code::invalid_argument, "inspect: expected one model file or folder", "turbo inspect FILE"), arguments, kUsage);
  if (!arguments.positional.empty()) profile->model.path = arguments.positional[0];
  const auto file = model::ModelFile::open(profile->model.path);
  if (!file) return fail(file.status(), arguments, kModel);
  if (arguments.has("--check-weights"))
    if (const Status status = model::check_weights(**file); !status.is_ok()) return fail(status, arguments, kModel);
  const model::ModelSummary summary = model::summarize(**file);
  const auto config = model::read_config(**file);

  nlohmann::ordered_json json = nlohmann::ordered_json::parse(summary.to_json());
  engine::KvTokenBytes token;
  if (!config) json["not_runnable"] = config.status().message();
  else if (const Status status = add_memory(json, token, *profile, *config, summary.tensor_bytes, has_settings(arguments)); !status.is_ok())
    return fail(status, arguments, kUsage);
  if (const Status status = add_draft_model(json, *profile); !status.is_ok()) return fail(status.with_context("drafter.model"), arguments, kModel);
  if (arguments.style.json) {
    print_json(json);
    return kOk;
  }
  for (const std::string& line : summary.to_lines()) fmt::print("{}\n", line);
  if (!config) {
    fmt::print("not runnable: {}\n", config.status().message());
    return kOk;
  }
  if (json.contains("memory_unknown")) {
    fmt::print("memory: not known here: {}\n", json["memory_unknown"].get<std::string>());
    return kOk;
  }
  for (const auto& row : json["memory_at_context"])
    fmt::print("memory at context {}: about {} with kv {}\n", row["context"].get<uint64_t>(), human_bytes(row["bytes"].get<uint64_t>()),
               json["kv_codec"].get<std::string>());
  if (const std::string note = engine::promotion_text(token, fmt::format("{} bytes a token instead of {}", token.bytes_promoted, token.bytes)); !note.empty())
    fmt::print("  {}\n", note);
  if (json.contains("draft_model"))
    fmt::print("draft model: {}: weights {}, cache {} bytes a token\n", json["draft_model"]["path"].get<std::string>(),
               human_bytes(json["draft_model"]["weights_bytes"].get<uint64_t>()), json["draft_model"]["kv_bytes_per_token"].get<uint64_t>());
  return kOk;
}

}  // namespace turbo::cli
