// turbo inspect: header facts of a model file, and the memory it will need.
#include "cli/commands.h"
#include "model/files/summary.h"
#include "model/files/weight_check.h"

namespace turbo::cli {

int run_inspect(const Arguments& arguments) {
  if (arguments.positional.size() != 1)
    return fail(Status(Code::invalid_argument, "inspect: expected one model file or folder", "turbo inspect FILE"), arguments, kUsage);
  const auto file = model::ModelFile::open(arguments.positional[0]);
  if (!file) return fail(file.status(), arguments, kModel);
  if (arguments.has("--check-weights"))
    if (const Status status = model::check_weights(**file); !status.is_ok()) return fail(status, arguments, kModel);
  const model::ModelSummary summary = model::summarize(**file);
  const auto config = model::read_config(**file);

  nlohmann::ordered_json json = nlohmann::ordered_json::parse(summary.to_json());
  if (config) {
    // Two bytes for each element of K and V: the f16 cache that profiles use unless they say otherwise.
    const uint64_t per_token = uint64_t{2} * config->n_layers * config->n_kv_heads * (config->head_dim_k + config->head_dim_v);
    json["context_length"] = config->context_length;
    json["kv_bytes_per_token_f16"] = per_token;
    json["memory_at_context"] = nlohmann::ordered_json::array();
    for (const uint64_t context : {uint64_t{2048}, uint64_t{8192}, uint64_t{32768}})
      if (context <= config->context_length)
        json["memory_at_context"].push_back({{"context", context}, {"bytes", summary.tensor_bytes + context * per_token}});
  } else {
    json["not_runnable"] = config.status().message();
  }
  if (arguments.style.json) {
    print_json(json);
    return kOk;
  }
  for (const std::string& line : summary.to_lines()) fmt::print("{}\n", line);
  if (!config) {
    fmt::print("not runnable: {}\n", config.status().message());
    return kOk;
  }
  for (const auto& row : json["memory_at_context"])
    fmt::print("memory at context {}: about {}\n", row["context"].get<uint64_t>(), human_bytes(row["bytes"].get<uint64_t>()));
  return kOk;
}

}  // namespace turbo::cli
