#include "model/files/summary.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "model/files/strict_json.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

std::string as_shown(const nlohmann::json& value) {
  return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

/// Top-level keys of config.json take the place of metadata.
void add_config_json(const ModelFile& file, ModelSummary* summary) {
  const auto root = parse_strict_json(file.config_json(), "config.json");
  if (!root) return;
  for (const auto& [key, value] : root->items()) {
    summary->metadata.emplace_back(printable(key), as_shown(value));
    if (key == "model_type" && value.is_string()) summary->architecture = printable(value.get<std::string>());
  }
}

}  // namespace

ModelSummary summarize(const ModelFile& file) {
  ModelSummary summary;
  summary.path = printable(file.path().string(), 400);
  summary.format = file.format() == Format::gguf ? "gguf" : "safetensors";
  summary.name = file.name();
  summary.files = file.files().size();
  summary.file_bytes = file.file_bytes();
  summary.tensors = file.tensors().size();
  std::map<uint32_t, ModelSummary::TypeRow> rows;
  for (const Tensor& tensor : file.tensors()) {
    summary.tensor_bytes += tensor.bytes;
    summary.parameters += tensor.n_elements();
    auto& row = rows[tensor.type];
    row.type = type_name(tensor.type);
    row.tensors += 1;
    row.bytes += tensor.bytes;
  }
  for (auto& [number, row] : rows) summary.types.push_back(std::move(row));
  std::stable_sort(summary.types.begin(), summary.types.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  for (const auto& entry : file.metadata()) summary.metadata.emplace_back(printable(entry.key), entry.value.shown());
  if (const std::string* text = file.metadata().find_string("general.architecture"))
    summary.architecture = printable(*text);
  if (const std::string* text = file.metadata().find_string("general.name")) summary.name = printable(*text);
  if (!file.config_json().empty()) add_config_json(file, &summary);
  return summary;
}

std::vector<std::string> ModelSummary::to_lines() const {
  std::vector<std::string> lines = {
      fmt::format("{} ({}, {} file{}, {} bytes)", path, format, files, files == 1 ? "" : "s", file_bytes),
      fmt::format("architecture  {}", architecture.empty() ? "not named" : architecture),
      fmt::format("name          {}", name),
      fmt::format("parameters    {}", parameters),
      fmt::format("tensors       {} ({} bytes)", tensors, tensor_bytes),
  };
  for (const TypeRow& row : types)
    lines.push_back(fmt::format("  {:<12}{:>6} tensors {:>16} bytes", row.type, row.tensors, row.bytes));
  for (const auto& [key, text] : metadata) lines.push_back(fmt::format("{} = {}", key, text));
  return lines;
}

std::string ModelSummary::to_json() const {
  nlohmann::ordered_json root = {{"path", path},
                                 {"format", format},
                                 {"architecture", architecture},
                                 {"name", name},
                                 {"files", files},
                                 {"file_bytes", file_bytes},
                                 {"parameters", parameters},
                                 {"tensors", tensors},
                                 {"tensor_bytes", tensor_bytes}};
  root["types"] = nlohmann::ordered_json::array();
  for (const TypeRow& row : types)
    root["types"].push_back({{"type", row.type}, {"tensors", row.tensors}, {"bytes", row.bytes}});
  root["metadata"] = nlohmann::ordered_json::object();
  for (const auto& [key, text] : metadata) root["metadata"][key] = text;
  return root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace turbo::model
