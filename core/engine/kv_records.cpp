#include "engine/kv_records.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "loader/files.h"

namespace turbo::engine {
namespace fs = std::filesystem;
namespace {

constexpr const char* kEnding = ".kvkeys";
constexpr size_t kNameDigits = 32;
constexpr uint64_t kMaxFiles = 64, kMaxFolderBytes = 64 << 20;
constexpr auto kUnfinishedAge = std::chrono::hours(1);  // after that its writer is gone

// Names that this folder's files have; whatever else lies there is not ours.
bool is_record(const std::string& name) {
  return name.size() == kNameDigits + 7 && name.ends_with(kEnding) && name.find_first_not_of("0123456789abcdef") == kNameDigits;
}
bool is_unfinished(const std::string& name) {
  return name.size() == kNameDigits + 7 + 7 && is_record(name.substr(0, kNameDigits + 7)) && name[kNameDigits + 7] == '.';
}

}  // namespace

fs::path KvRecords::path_of(const KvRecord& about) const {
  if (folder_.empty()) return {};
  Sha256 sum;
  sum.add(about.model).add(about.conditions).add(std::as_bytes(std::span(&about.shape, 1)));
  return folder_ / (Sha256::hex(sum.finish()).substr(0, kNameDigits) + kEnding);
}

Result<KvRecord> KvRecords::read(const fs::path& path, const KvRecord& about) const {
  TURBO_RETURN_IF_ERROR(loader::check_trusted(path));
  TURBO_ASSIGN(const std::string bytes, loader::read_bounded(path, kMaxRecordBytes));
  Result<KvRecord> record = read_record(bytes);
  if (!record) return record.status().with_context(path.string());
  if (record->model != about.model || record->conditions != about.conditions || record->shape != about.shape)
    return error(Code::corrupt_input, "{}: a record of another model", path.string());
  return record;
}

std::optional<KvRecord> KvRecords::recall(const KvRecord& about) const {
  const fs::path path = path_of(about);
  if (path.empty()) return std::nullopt;
  Result<KvRecord> record = read(path, about);
  if (record) {
    std::error_code ignored;
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // so that the least used goes first
    return std::move(*record);
  }
  if (record.status().code() != Code::not_found) spdlog::warn("KV cache: what is remembered of keys is not used: {}", record.status().message());
  return std::nullopt;
}

bool KvRecords::remember(KvRecord record) const {
  const fs::path path = path_of(record);
  if (path.empty()) return false;
  if (const Result<KvRecord> there = read(path, record); there && there->centers == record.centers) record.merge(*there);
  const std::string bytes = write_record(record);
  if (bytes.empty() || !loader::replace_file(path, bytes)) {
    spdlog::debug("KV cache: {}: cannot be written; keys will be looked at again", path.string());
    return false;
  }
  remove_old();
  return true;
}

void KvRecords::remove_old() const {
  struct File {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  std::error_code failed;
  const auto now = fs::file_time_type::clock::now();
  for (auto entry = fs::directory_iterator(folder_, failed); !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    std::error_code gone;
    if (!is_record(name) && !is_unfinished(name)) continue;
    if (entry->symlink_status(gone).type() != fs::file_type::regular) continue;
    const File file{entry->last_write_time(gone), entry->file_size(gone), entry->path()};
    if (gone) continue;
    if (is_record(name)) files.push_back(file);
    else if (now - file.used > kUnfinishedAge) fs::remove(file.path, gone);
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used > b.used; });
  uint64_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    bytes += files[i].bytes;
    if (i > 0 && (i >= kMaxFiles || bytes > kMaxFolderBytes)) fs::remove(files[i].path, failed);
  }
}

Result<KvRecord> read_center_file(const fs::path& path, const KvShape& shape, const Sha256::Value& model) {
  constexpr const char* hint = "load this model once with kv.options.center=on: the log names the file that it writes; or leave center at on";
  // Whatever is wrong with it, it is the setting that has to change.
  const auto refuse = [&](std::string_view why) { return error(Code::invalid_argument, "kv.options.center: {}: {}", path.string(), why).with_hint(hint); };
  const Result<std::string> bytes = loader::read_bounded(path, kMaxRecordBytes);
  if (!bytes) return error(Code::invalid_argument, "kv.options.center: {}", bytes.status().message()).with_hint(hint);
  Result<KvRecord> record = read_record(*bytes);
  if (!record) return refuse(record.status().message());
  if (record->shape != shape)
    return refuse(fmt::format("expected centers of {} layers of {} heads of {} but found {} of {} of {}", shape.n_layers, shape.n_kv_heads,
                              shape.head_dim, record->shape.n_layers, record->shape.n_kv_heads, record->shape.head_dim));
  if (record->model != model) return refuse("centers of another model, or of another version of this one");
  return record;
}

}  // namespace turbo::engine
