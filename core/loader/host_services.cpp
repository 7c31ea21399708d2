// Host services over memory, files, the model and the registry.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"
#include "loader/files.h"
#include "loader/host_tables.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

constexpr uint64_t max_alignment = 2 << 20;

ComponentHost* self_of(void* ctx) { return static_cast<ComponentHost*>(ctx); }

// Nothing thrown here may reach the plugin.
template <typename Body>
turbo_status barrier(turbo_error* error, Body&& body) noexcept {
  try {
    return fill_abi_error(error, body());
  } catch (const std::exception&) {
    return fill_abi_error(error, Status(Code::resource_exhausted, "out of memory"));
  }
}

class RegularFile {
 public:
  static Result<RegularFile> open(const std::string& path) {
    RegularFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat facts {};
    if (file.fd_ < 0 || ::fstat(file.fd_, &facts) != 0)
      return error(errno == ENOENT ? Code::not_found : Code::invalid_argument, "{}: cannot open: {}", clean_text(path),
                   std::strerror(errno));
    if (!S_ISREG(facts.st_mode)) return error(Code::invalid_argument, "{}: expected a regular file", clean_text(path));
    file.bytes_ = static_cast<uint64_t>(facts.st_size);
    return file;
  }
  RegularFile(RegularFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}
  RegularFile& operator=(RegularFile&&) = delete;
  ~RegularFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  uint64_t bytes() const { return bytes_; }

  Status read(const std::string& path, uint64_t offset, char* dst, uint64_t bytes) const {
    const auto end = checked_add(offset, bytes);
    if (!end || *end > bytes_)
      return error(Code::invalid_argument, "{}: expected {} bytes at {} but the file has {}", clean_text(path), bytes,
                   offset, bytes_);
    while (bytes > 0) {
      const ssize_t got = ::pread(fd_, dst, std::min<uint64_t>(bytes, 1 << 30), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return error(Code::invalid_argument, "{}: cannot read: {}", clean_text(path), std::strerror(errno));
      if (got == 0) return error(Code::corrupt_input, "{}: ended at {} while it was read", clean_text(path), offset);
      dst += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
    return Status::ok();
  }

 private:
  explicit RegularFile(int fd) : fd_(fd) {}
  int fd_;
  uint64_t bytes_ = 0;
};

}  // namespace

turbo_status fill_abi_error(turbo_error* error, const Status& status) {
  const auto code = static_cast<turbo_status>(status.code());
  if (error && !status.is_ok() && error->struct_size >= sizeof(turbo_error)) {
    error->code = code;
    std::snprintf(error->message, sizeof error->message, "%s", status.message().c_str());
    std::snprintf(error->hint, sizeof error->hint, "%s", status.hint().c_str());
  }
  return code;
}

void* ComponentHost::allocate(void* ctx, uint32_t memory, uint64_t bytes, uint64_t alignment, const char* tag,
                              turbo_error* error) {
  void* pointer = nullptr;
  barrier(error, [&]() -> Status {
    if (!ctx || !tag) return Status(Code::invalid_argument, "allocate: host and tag must not be null");
    if (memory != TURBO_MEMORY_HOST)
      return Status(Code::unsupported, "allocate: only host memory is offered here",
                    "device memory comes from the tier's arch pack");
    if (!std::has_single_bit(alignment) || alignment > max_alignment)
      return turbo::error(Code::invalid_argument,
                          "allocate: alignment: expected a power of two up to 2 MiB but found {}", alignment);
    const uint64_t granted_alignment = std::max<uint64_t>(alignment, sizeof(void*));
    const auto size = checked_align_up(std::max<uint64_t>(bytes, 1), granted_alignment);
    ComponentHost& self = *self_of(ctx);
    const std::string label = clean_c_text(tag, 64);
    std::unique_ptr<void, void (*)(void*)> block(size ? std::aligned_alloc(granted_alignment, *size) : nullptr,
                                                 &std::free);
    if (!block)
      return turbo::error(Code::resource_exhausted, "allocate: {} bytes of '{}' are not available", bytes, label);
    {
      const std::lock_guard lock(self.mutex_);
      self.allocations_[block.get()] = {*size, label};
    }
    self.settings_.services.memory->add(label, *size);
    pointer = block.release();
    return Status::ok();
  });
  return pointer;
}

void ComponentHost::release(void* ctx, void* pointer) {
  if (!ctx || !pointer) return;
  ComponentHost& self = *self_of(ctx);
  Allocation allocation;
  {
    const std::lock_guard lock(self.mutex_);
    const auto found = self.allocations_.find(pointer);
    if (found == self.allocations_.end())
      return self.log().error("{}: released memory that it does not own", self.settings_.label);
    allocation = std::move(found->second);
    self.allocations_.erase(found);
  }
  self.settings_.services.memory->remove(allocation.tag, allocation.bytes);
  std::free(pointer);
}

void ComponentHost::account(void* ctx, uint32_t memory, const char* tag, int64_t bytes) {
  if (!ctx || !tag || bytes == 0) return;
  ComponentHost& self = *self_of(ctx);
  barrier(nullptr, [&]() -> Status {
    const std::string label = clean_c_text(tag, 64);
    const auto amount = bytes < 0 ? ~static_cast<uint64_t>(bytes) + 1 : static_cast<uint64_t>(bytes);
    const std::lock_guard lock(self.mutex_);
    uint64_t& held = self.accounted_[{memory, label}];
    const std::optional<uint64_t> sum = bytes > 0 ? checked_add(held, amount) : std::optional<uint64_t>(held - std::min(held, amount));
    if (!sum || (bytes < 0 && amount > held))
      self.log().error("{}: account: {} bytes more or fewer than the {} of '{}' are impossible", self.settings_.label, bytes, held, label);
    if (!sum) return Status::ok();
    if (*sum > held)
      self.settings_.services.memory->add(label, *sum - held);
    else
      self.settings_.services.memory->remove(label, held - *sum);
    held = *sum;
    if (held == 0) self.accounted_.erase({memory, label});
    return Status::ok();
  });
}

// The real path of a file that the profile gave to this component, or that lies in a folder it gave.
Result<std::string> ComponentHost::allowed_file(const char* path) const {
  namespace fs = std::filesystem;
  if (!path) return Status(Code::invalid_argument, "file: path must not be null");
  if (strnlen(path, 4096) >= 4096) return Status(Code::invalid_argument, "file: path is over 4096 bytes");
  std::error_code failed;
  const fs::path wanted = fs::canonical(path, failed);
  if (failed) return error(Code::not_found, "{}: {}", clean_c_text(path, 512), failed.message());
  std::vector<fs::path> roots = settings_.files;
  for (const auto& [key, value] : settings_.options)
    if (const auto* text = std::get_if<std::string>(&value); text && !text->empty()) roots.emplace_back(*text);
  for (const fs::path& root : roots) {
    const fs::path base = fs::canonical(root, failed);
    if (failed) continue;
    if (wanted == base) return wanted.string();
    const fs::path inside = wanted.lexically_relative(base);
    if (!inside.empty() && *inside.begin() != ".." && !inside.is_absolute()) return wanted.string();
  }
  return Status(Code::invalid_argument,
                fmt::format("{}: the profile does not name this file for the component", clean_c_text(path, 512)),
                "name it in one of the component's options");
}

turbo_status ComponentHost::file_size(void* ctx, const char* path, uint64_t* bytes, turbo_error* error) {
  return barrier(error, [&]() -> Status {
    if (!ctx || !bytes) return Status(Code::invalid_argument, "file: host and size must not be null");
    TURBO_ASSIGN(const std::string real, self_of(ctx)->allowed_file(path));
    TURBO_ASSIGN(const RegularFile file, RegularFile::open(real));
    *bytes = file.bytes();
    return Status::ok();
  });
}

turbo_status ComponentHost::file_read(void* ctx, const char* path, uint64_t offset, void* dst, uint64_t bytes,
                                      turbo_error* error) {
  return barrier(error, [&]() -> Status {
    if (!ctx || (!dst && bytes > 0)) return Status(Code::invalid_argument, "file: host and buffer must not be null");
    TURBO_ASSIGN(const std::string real, self_of(ctx)->allowed_file(path));
    TURBO_ASSIGN(const RegularFile file, RegularFile::open(real));
    return file.read(real, offset, static_cast<char*>(dst), bytes);
  });
}

const turbo_model_facts* ComponentHost::model_facts(void* ctx) {
  return ctx ? self_of(ctx)->settings_.services.model->facts() : nullptr;
}

turbo_status ComponentHost::model_tensor(void* ctx, const char* name, turbo_view* view, turbo_error* error) {
  return barrier(error, [&]() -> Status {
    if (!ctx || !name || !view) return Status(Code::invalid_argument, "model: name and view must not be null");
    return self_of(ctx)->settings_.services.model->tensor(std::string(name, strnlen(name, 1024)), *view);
  });
}

turbo_status ComponentHost::model_encode(void* ctx, const char* text, uint64_t text_bytes, int32_t* ids, uint64_t* n) {
  return barrier(nullptr, [&]() -> Status {
    if (!ctx || !n || (!text && text_bytes > 0))
      return Status(Code::invalid_argument, "model: text and count must not be null");
    TURBO_ASSIGN(const std::vector<int32_t> encoded,
                 self_of(ctx)->settings_.services.model->encode({text, text_bytes}));
    const uint64_t capacity = ids ? *n : 0;
    *n = encoded.size();
    if (encoded.size() > capacity) return Status(Code::resource_exhausted, "model: the id buffer is too small");
    std::copy(encoded.begin(), encoded.end(), ids);
    return Status::ok();
  });
}

turbo_status ComponentHost::model_token_bytes(void* ctx, int32_t id, const char** bytes, uint64_t* n) {
  return barrier(nullptr, [&]() -> Status {
    if (!ctx || !bytes || !n) return Status(Code::invalid_argument, "model: out-parameters must not be null");
    TURBO_ASSIGN(const std::string_view text, self_of(ctx)->settings_.services.model->token_bytes(id));
    *bytes = text.data();
    *n = text.size();
    return Status::ok();
  });
}

turbo_status ComponentHost::registry_format(void* ctx, uint32_t type, const turbo_weight_format** format,
                                            void** instance, turbo_error* error) {
  return barrier(error, [&]() -> Status {
    if (!ctx || !format || !instance)
      return Status(Code::invalid_argument, "registry: out-parameters must not be null");
    const auto& formats = self_of(ctx)->settings_.registry->weight_formats;
    const auto found = formats.find(type);
    if (found == formats.end())
      return turbo::error(Code::unsupported, "registry: no weight format was resolved for GGUF type {}", type);
    *format = static_cast<const turbo_weight_format*>(found->second.table);
    *instance = found->second.instance;
    return Status::ok();
  });
}

turbo_status ComponentHost::registry_codec(void* ctx, uint32_t side, uint32_t layer, const turbo_kv_codec** codec,
                                           void** instance, turbo_error* error) {
  return barrier(error, [&]() -> Status {
    if (!ctx || !codec || !instance) return Status(Code::invalid_argument, "registry: out-parameters must not be null");
    if (side > TURBO_KV_SIDE_V)
      return turbo::error(Code::invalid_argument, "registry: side: expected 0 or 1 but found {}", side);
    const Registry& registry = *self_of(ctx)->settings_.registry;
    const auto own = registry.layer_codecs[side].find(layer);
    const Registry::Entry& entry = own == registry.layer_codecs[side].end() ? registry.kv_codecs[side] : own->second;
    if (!entry.table)
      return turbo::error(Code::unsupported, "registry: no KV codec was resolved for side {}",
                          side == TURBO_KV_SIDE_K ? "K" : "V");
    *codec = static_cast<const turbo_kv_codec*>(entry.table);
    *instance = entry.instance;
    return Status::ok();
  });
}

const void* ComponentHost::registry_interface(void* ctx, void* instance, const char* id) {
  if (!ctx || !id) return nullptr;
  const Registry& registry = *self_of(ctx)->settings_.registry;
  return registry.interface ? registry.interface(instance, id) : nullptr;
}

}  // namespace turbo::loader
