#include "model/files/model_file.h"

#include <array>
#include <cstring>
#include <new>

#include "model/files/limits.h"
#include "model/files/model_readers.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

namespace fs = std::filesystem;

struct Magic {
  std::string_view bytes;
  std::string_view what;
};
using namespace std::string_view_literals;
constexpr Magic kForeign[] = {
    {"PK\x03\x04"sv, "a zip archive (PyTorch checkpoints are zip archives of pickles)"},
    {"PK\x05\x06"sv, "an empty zip archive"},
    {"\x80\x02"sv, "a pickle"},
    {"\x80\x03"sv, "a pickle"},
    {"\x80\x04"sv, "a pickle"},
    {"\x80\x05"sv, "a pickle"},
    {"\x1f\x8b"sv, "a gzip archive"},
    {"BZh"sv, "a bzip2 archive"},
    {"\xfd\x37zXZ"sv, "an xz archive"},
    {"\x28\xb5\x2f\xfd"sv, "a zstd archive"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    {"Rar!"sv, "a rar archive"},
    {"\x89HDF"sv, "an HDF5 file"},
    {"\x93NUMPY"sv, "a NumPy array"},
    {"\x7f"
     "ELF"sv,
     "a program or library"},
    {"lmgg"sv, "a GGML file from before GGUF"},
    {"fmgg"sv, "a GGMF file from before GGUF"},
    {"tjgg"sv, "a GGJT file from before GGUF"},
    {"algg"sv, "a GGLA adapter from before GGUF"},
    {"version https://git-lfs"sv, "a Git LFS pointer, not the model itself"},
    {"<!DOCTYPE"sv, "an HTML page"},
    {"<!doctype"sv, "an HTML page"},
    {"<html"sv, "an HTML page"},
    {"{"sv, "JSON text"},
};

std::string_view foreign_hint(std::string_view what) {
  if (what.find("pickle") != what.npos) {
    return "turbo never loads pickle, which can run code; use the model's GGUF or safetensors files";
  }
  if (what.find("archive") != what.npos) return "unpack it first; turbo never decompresses models by itself";
  if (what.find("before GGUF") != what.npos) return "convert the model to GGUF with a current converter";
  if (what.find("LFS") != what.npos) return "fetch the real file with 'git lfs pull'";
  if (what.find("HTML") != what.npos) return "the download went wrong (an error page was saved); fetch the file again";
  if (what.find("JSON") != what.npos) return "give the folder that holds config.json and the safetensors files";
  return "give a GGUF file, or a folder with config.json and safetensors files";
}

/// A safetensors file has no magic; a plausible header length followed by '{' is the mark.
bool looks_like_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 9 || bytes[8] != std::byte{'{'}) return false;
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  return length <= limits::safetensors_header_bytes;
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

Result<std::unique_ptr<ModelFile>> read_any(MappedFile file, const fs::path& path, const OpenOptions& options) {
  const auto bytes = file.bytes();
  if (starts_with(bytes, "GGUF")) return GgufModelReader::read(std::move(file), path, options);
  if (looks_like_safetensors(bytes)) return SafetensorsModelReader::read_file(std::move(file), path);
  if (bytes.empty()) {
    return error(Code::corrupt_input, "{}: header: expected a model but the file is empty", file.name())
        .with_hint("the download failed; fetch the file again");
  }
  if (const std::string_view what = foreign_format(bytes); !what.empty()) {
    return error(Code::unsupported, "{}: header: expected GGUF or safetensors but this is {}", file.name(), what)
        .with_hint(std::string(foreign_hint(what)));
  }
  if (bytes.size() < 4 && starts_with(bytes, std::string_view("GGUF").substr(0, bytes.size()))) {
    return error(Code::corrupt_input, "{}: header: expected 24 bytes but the file has {}", file.name(), bytes.size())
        .with_hint("the download is incomplete; fetch the file again");
  }
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 8));
  return error(Code::unsupported, "{}: header: expected GGUF or safetensors but found '{}'", file.name(),
               printable(head))
      .with_hint("give a GGUF file, or a folder with config.json and safetensors files");
}

Result<std::unique_ptr<ModelFile>> open_any(const fs::path& path, const OpenOptions& options) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return SafetensorsModelReader::read_folder(path, options);
  TURBO_ASSIGN(MappedFile file, MappedFile::open(path, options.use_mmap));
  return read_any(std::move(file), path, options);
}

/// Libraries below may throw (memory, file system); nothing leaves this folder that way.
template <typename Read>
Result<std::unique_ptr<ModelFile>> without_exceptions(const std::string& name, Read read) {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    return error(Code::resource_exhausted, "{}: not enough memory to read the model's header", name);
  } catch (const std::exception& failure) {
    return error(Code::internal, "{}: {}", name, failure.what());
  }
}

}  // namespace

std::string_view foreign_format(std::span<const std::byte> head) {
  for (const Magic& magic : kForeign) {
    if (starts_with(head, magic.bytes)) return magic.what;
  }
  if (head.size() >= 262 && std::memcmp(head.data() + 257, "ustar", 5) == 0) return "a tar archive";
  return {};
}

std::string shape_text(std::span<const uint64_t> dims) { return fmt::format("{{{}}}", fmt::join(dims, ", ")); }

uint64_t Tensor::n_elements() const {
  uint64_t product = 1;
  for (uint64_t dim : dims) product *= dim;
  return product;
}

uint64_t Tensor::row_bytes() const { return bytes / (n_elements() / dims[0]); }

const TypeInfo& Tensor::type_info() const { return *find_type(type); }

Result<std::unique_ptr<ModelFile>> ModelFile::open(const fs::path& path, const OpenOptions& options) {
  return without_exceptions(printable(path.string(), 400), [&] { return open_any(path, options); });
}

Result<std::unique_ptr<ModelFile>> ModelFile::open_memory(std::string name, std::span<const std::byte> bytes) {
  return without_exceptions(name, [&] { return read_any(MappedFile::borrow(name, bytes), {}, {}); });
}

const Tensor* ModelFile::find(std::string_view name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

uint64_t ModelFile::file_bytes() const {
  uint64_t total = 0;
  for (const MappedFile& file : files_) total += file.bytes().size();
  return total;
}

void ModelFile::drop_pages(const Tensor& tensor) const {
  if (tensor.file_index < files_.size()) files_[tensor.file_index].drop_pages(tensor.data, tensor.bytes);
}

Status ModelFile::verify_unchanged() const {
  for (const MappedFile& file : files_) TURBO_RETURN_IF_ERROR(file.verify_unchanged());
  return Status::ok();
}

Status ModelFile::add_tensors(std::vector<Tensor> tensors, const std::string& file_name) {
  if (tensors_.size() + tensors.size() > limits::tensors) {
    return error(Code::resource_exhausted, "{}: tensor table: expected at most {} tensors in a model but found more",
                 file_name, limits::tensors);
  }
  for (Tensor& tensor : tensors) {
    for (const std::string& key : {tensor.name, tensor.source_name}) {
      if (key.empty()) continue;
      const auto [at, fresh] = index_.emplace(key, tensors_.size());
      if (!fresh) {
        return error(Code::corrupt_input, "{}: tensor '{}': it is there twice, in {} and in {}", file_name,
                     printable(key), files_[tensors_[at->second].file_index].name(), file_name)
            .with_hint("the files belong to different models, or the model is damaged");
      }
    }
    tensors_.push_back(std::move(tensor));
  }
  return Status::ok();
}

}  // namespace turbo::model
