// A folder with config.json and safetensors: one file, or shards named by model.safetensors.index.json.
#include <algorithm>
#include <map>

#include "model/files/limits.h"
#include "model/files/model_readers.h"
#include "model/files/safetensors_reader.h"
#include "model/files/strict_json.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

bool is_file(const fs::path& path) {
  std::error_code failed;
  return fs::is_regular_file(path, failed);
}

std::string folder_name(const fs::path& folder) {
  const fs::path plain = folder.has_filename() ? folder : folder.parent_path();
  const std::string name = plain.filename().string();
  return printable(name.empty() || name == "." ? folder.string() : name, 200);
}

/// Names in the folder that end in `extension`, sorted, at most a few.
std::vector<std::string> files_ending(const fs::path& folder, std::string_view extension) {
  std::vector<std::string> names;
  std::error_code failed;
  uint64_t seen = 0;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end && seen < 10'000;
       at.increment(failed), ++seen) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(extension) && is_file(at->path())) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Why a folder without usable weights is refused, and what to do instead.
Status nothing_to_read(const fs::path& folder, const std::string& name) {
  if (const auto found = files_ending(folder, ".gguf"); !found.empty()) {
    return error(Code::invalid_argument, "{}: expected a folder with config.json and safetensors but found GGUF files",
                 name)
        .with_hint(fmt::format("give the file itself: {}", printable((folder / found[0]).string(), 400)));
  }
  for (const char* extension : {".bin", ".pt", ".pth", ".pkl", ".ckpt"}) {
    if (const auto found = files_ending(folder, extension); !found.empty()) {
      return error(Code::unsupported, "{}: expected safetensors files but found '{}', which is a pickle", name,
                   printable(found[0]))
          .with_hint("turbo never loads pickle, which can run code; use the model's GGUF or safetensors files");
    }
  }
  return error(Code::not_found, "{}: expected config.json with model.safetensors or {} but found neither", name, kIndex)
      .with_hint("give a GGUF file, or a folder with config.json and safetensors files");
}

}  // namespace

Status SafetensorsModelReader::add_file(ModelFile& model, MappedFile file, Naming naming) {
  if (const std::string_view what = foreign_format(file.bytes()); !what.empty()) {
    return error(Code::unsupported, "{}: header: expected safetensors but this is {}", file.name(), what)
        .with_hint(what.find("pickle") != what.npos
                       ? "turbo never loads pickle, which can run code; use the model's GGUF or safetensors files"
                       : "download the model's safetensors files again");
  }
  const std::string name = file.name();
  TURBO_ASSIGN(SafetensorsContents contents, read_safetensors(file.bytes(), name, uint32_t(model.files_.size())));
  model.files_.push_back(std::move(file));
  // Only whole models get canonical names: in a draft head "lm_head" and its like are the head's own.
  if (naming == Naming::detect) {
    const bool whole = std::any_of(contents.tensors.begin(), contents.tensors.end(),
                                   [](const Tensor& tensor) { return tensor.name.starts_with("model."); });
    naming = whole ? Naming::canonical : Naming::as_is;
  }
  for (Tensor& tensor : contents.tensors) {
    std::string canonical = naming == Naming::canonical ? canonical_tensor_name(tensor.name) : std::string();
    if (!canonical.empty() && canonical != tensor.name) {
      tensor.source_name = std::move(tensor.name);
      tensor.name = std::move(canonical);
    }
  }
  if (model.files_.size() == 1) model.metadata_ = std::move(contents.metadata);
  return model.add_tensors(std::move(contents.tensors), name);
}

Result<std::unique_ptr<ModelFile>> SafetensorsModelReader::read_file(MappedFile file, const fs::path& path) {
  std::unique_ptr<ModelFile> model(new ModelFile());
  model->format_ = Format::safetensors;
  model->path_ = path;
  model->folder_ = path.parent_path();
  model->name_ = file.name();
  TURBO_RETURN_IF_ERROR(add_file(*model, std::move(file), Naming::detect));
  if (!path.empty() && is_file(model->folder_ / "config.json")) {
    TURBO_ASSIGN(model->config_json_, read_text_file(model->folder_ / "config.json", limits::json_bytes));
  }
  return model;
}

Result<std::unique_ptr<ModelFile>> SafetensorsModelReader::read_folder(const fs::path& folder,
                                                                       const OpenOptions& options) {
  std::unique_ptr<ModelFile> model(new ModelFile());
  model->format_ = Format::safetensors;
  model->path_ = folder;
  model->folder_ = folder;
  model->name_ = folder_name(folder);
  if (!is_file(folder / "config.json")) return nothing_to_read(folder, model->name_);
  TURBO_ASSIGN(model->config_json_, read_text_file(folder / "config.json", limits::json_bytes));
  TURBO_RETURN_IF_ERROR(parse_strict_json(model->config_json_, model->name_ + ": config.json").status());

  fs::path single = folder / "model.safetensors";
  if (!is_file(single)) {
    if (is_file(folder / kIndex)) {
      TURBO_RETURN_IF_ERROR(read_index(*model, folder / kIndex, options));
      return model;
    }
    const auto found = files_ending(folder, ".safetensors");
    if (found.size() != 1) return nothing_to_read(folder, model->name_);
    single = folder / found[0];
  }
  TURBO_ASSIGN(MappedFile file, MappedFile::open(single, options.use_mmap));
  TURBO_RETURN_IF_ERROR(add_file(*model, std::move(file), Naming::detect));
  return model;
}

Status SafetensorsModelReader::read_index(ModelFile& model, const fs::path& index, const OpenOptions& options) {
  TURBO_ASSIGN(const std::string text, read_text_file(index, limits::index_bytes));
  const std::string name = index.filename().string();
  TURBO_ASSIGN(const nlohmann::json document, parse_strict_json(text, name));
  const auto corrupt = [&](std::string_view why) {
    return error(Code::corrupt_input, "{}: {}", name, why)
        .with_hint("the index and the files do not belong together; download the model again");
  };
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object() || map->empty())
    return corrupt("expected an object 'weight_map' with entries");
  Naming naming = Naming::as_is;
  std::map<std::string, uint64_t> shards;  // file name -> number of tensors that the index places in it
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) return corrupt(fmt::format("tensor '{}': expected a file name", printable(tensor)));
    ++shards[shard.get<std::string>()];
    if (tensor.starts_with("model.")) naming = Naming::canonical;
  }
  if (shards.size() > limits::files) {
    return error(Code::resource_exhausted, "{}: expected at most {} files but found {}", name, limits::files,
                 shards.size());
  }
  for (const auto& [shard, n_tensors] : shards) {
    TURBO_ASSIGN(const fs::path path, file_inside(model.folder_, shard, name));
    TURBO_ASSIGN(MappedFile file, MappedFile::open(path, options.use_mmap));
    const size_t before = model.tensors_.size();
    TURBO_RETURN_IF_ERROR(add_file(model, std::move(file), naming));
    for (size_t i = before; i < model.tensors_.size(); ++i) {
      const Tensor& tensor = model.tensors_[i];
      const auto listed = map->find(tensor.source_name.empty() ? tensor.name : tensor.source_name);
      if (listed == map->end() || *listed != shard) {
        return corrupt(fmt::format("tensor '{}': it is in '{}' but the index does not place it there",
                                   printable(tensor.name), printable(shard)));
      }
    }
    if (model.tensors_.size() - before != n_tensors) {
      return corrupt(fmt::format("file '{}': expected {} tensors but found {}", printable(shard), n_tensors,
                                 model.tensors_.size() - before));
    }
  }
  return Status::ok();
}

}  // namespace turbo::model
