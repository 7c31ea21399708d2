// A GGUF model of one file or of several parts named NAME-00001-of-00003.gguf.
#include <charconv>
#include <optional>

#include "model/files/gguf_reader.h"
#include "model/files/limits.h"
#include "model/files/model_readers.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

namespace fs = std::filesystem;

struct PartName {
  std::string prefix;
  uint64_t number = 0;  // from 1
  uint64_t count = 0;
};

/// NAME-NNNNN-of-NNNNN.gguf, as split tools write it.
std::optional<PartName> parse_part_name(std::string_view name) {
  constexpr std::string_view kTail = "-00000-of-00000.gguf";
  if (name.size() <= kTail.size()) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - kTail.size());
  PartName part;
  part.prefix = std::string(name.substr(0, name.size() - kTail.size()));
  const auto digits = [&](size_t at, uint64_t* number) {
    const char* from = tail.data() + at;
    const auto [stop, failed] = std::from_chars(from, from + 5, *number);
    return failed == std::errc() && stop == from + 5;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") return std::nullopt;
  if (!digits(1, &part.number) || !digits(10, &part.count)) return std::nullopt;
  return part;
}

std::string part_file_name(const PartName& part, uint64_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", part.prefix, number, part.count);
}

Status refuse_rotated(const Metadata& metadata) {
  for (const auto& entry : metadata) {
    if (entry.key.starts_with("prism.hadamard.")) {
      return error(Code::unsupported,
                   "{}: key '{}': the weights are stored in a rotated basis (Hadamard transform), which turbo does not "
                   "undo",
                   metadata.source(), printable(entry.key))
          .with_hint("use a file of this model whose weights are not rotated");
    }
  }
  return Status::ok();
}

/// split.no and split.count of a part must be those of its place.
Status check_part(const Metadata& metadata, uint64_t index, uint64_t count) {
  TURBO_ASSIGN(const uint64_t number, metadata.get_unsigned("split.no"));
  TURBO_ASSIGN(const uint64_t parts, metadata.get_unsigned("split.count"));
  const auto mismatch = [&](const char* key, uint64_t expected, uint64_t found) {
    return error(Code::corrupt_input, "{}: key '{}': expected {} but found {}", metadata.source(), key, expected, found)
        .with_hint("a part was renamed, repeated or comes from another model; download all parts again");
  };
  if (parts != count) return mismatch("split.count", count, parts);
  if (number != index) return mismatch("split.no", index, number);
  return Status::ok();
}

/// Parts after the first hold few keys; any they share with the first part must agree.
Status check_same_model(const Metadata& first, const Metadata& part) {
  for (const auto& entry : part) {
    if (entry.key == "split.no" || entry.key == "general.alignment") continue;
    const Value* same = first.find(entry.key);
    if (same && !(*same == entry.value)) {
      return error(Code::corrupt_input, "{}: key '{}': expected {} as in {} but found {}", part.source(),
                   printable(entry.key), same->shown(), first.source(), entry.value.shown())
          .with_hint("the parts belong to different models");
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<ModelFile>> GgufModelReader::read(MappedFile first, const fs::path& path,
                                                         const OpenOptions& options) {
  std::unique_ptr<ModelFile> model(new ModelFile());
  model->format_ = Format::gguf;
  model->path_ = path;
  model->folder_ = path.parent_path();
  model->name_ = first.name();

  TURBO_ASSIGN(GgufContents contents, read_gguf(first.bytes(), first.name()));
  TURBO_RETURN_IF_ERROR(refuse_rotated(contents.metadata));
  TURBO_ASSIGN(const auto count, contents.metadata.optional_unsigned("split.count"));
  if (count && *count > 1) {
    TURBO_RETURN_IF_ERROR(read_parts(*model, std::move(first), options));
    return model;
  }
  model->metadata_ = std::move(contents.metadata);
  model->files_.push_back(std::move(first));
  TURBO_RETURN_IF_ERROR(model->add_tensors(std::move(contents.tensors), model->name_));
  return model;
}

Status GgufModelReader::read_parts(ModelFile& model, MappedFile first, const OpenOptions& options) {
  const std::string given = model.path_.filename().string();
  const auto part_name = parse_part_name(given);
  if (!part_name) {
    return error(Code::corrupt_input,
                 "{}: file name: expected NAME-00001-of-00002.gguf, as this is a part of a split model", model.name_)
        .with_hint("give the parts their original names back, and keep them in one folder");
  }
  if (part_name->count < 2 || part_name->count > limits::files || part_name->number < 1 ||
      part_name->number > part_name->count) {
    return error(Code::corrupt_input,
                 "{}: file name: expected a part from 1 to N of N = 2 to {} parts but found {} of {}", model.name_,
                 limits::files, part_name->number, part_name->count);
  }
  uint64_t n_tensors = 0;
  std::optional<uint64_t> declared;
  for (uint64_t i = 0; i < part_name->count; ++i) {
    MappedFile file;
    if (i + 1 == part_name->number) {
      file = std::move(first);
    } else {
      TURBO_ASSIGN(const fs::path path, file_inside(model.folder_, part_file_name(*part_name, i + 1), model.name_));
      TURBO_ASSIGN(file, MappedFile::open(path, options.use_mmap));
    }
    TURBO_ASSIGN(GgufContents contents, read_gguf(file.bytes(), file.name(), uint32_t(i)));
    TURBO_RETURN_IF_ERROR(check_part(contents.metadata, i, part_name->count));
    const std::string name = file.name();
    model.files_.push_back(std::move(file));
    n_tensors += contents.tensors.size();
    TURBO_RETURN_IF_ERROR(model.add_tensors(std::move(contents.tensors), name));
    if (i == 0) {
      model.metadata_ = std::move(contents.metadata);
      TURBO_ASSIGN(declared, model.metadata_.optional_unsigned("split.tensors.count"));
    } else {
      TURBO_RETURN_IF_ERROR(refuse_rotated(contents.metadata));
      TURBO_RETURN_IF_ERROR(check_same_model(model.metadata_, contents.metadata));
    }
  }
  TURBO_RETURN_IF_ERROR(refuse_rotated(model.metadata_));
  if (declared && *declared != n_tensors) {
    return error(Code::corrupt_input, "{}: key 'split.tensors.count': expected {} tensors in all parts but found {}",
                 model.name_, *declared, n_tensors)
        .with_hint("the parts belong to different models; download all parts again");
  }
  return Status::ok();
}

}  // namespace turbo::model
