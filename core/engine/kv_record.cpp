#include "engine/kv_record.h"

#include <turbo/kernel/half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "base/checked.h"

namespace turbo::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "records are written as they lie in memory");

struct Head {
  char magic[8] = {'t', 'u', 'r', 'b', 'o', 'k', 'r', '1'};
  uint32_t n_layers = 0, n_kv_heads = 0, head_dim = 0, n_measured = 0;
  Sha256::Value model{}, conditions{};
};
static_assert(sizeof(Head) == 88);

// Nothing when it is beyond kMaxRecordBytes.
std::optional<uint64_t> record_bytes(const KvShape& shape, uint64_t n_measured) {
  if (n_measured > kMaxMeasured) return std::nullopt;
  const auto heads = checked_mul(shape.n_layers, shape.n_kv_heads);
  const auto centers = heads ? checked_mul(*heads, uint64_t{shape.head_dim} * sizeof(uint16_t)) : std::nullopt;
  if (!centers || *centers == 0 || *centers > kMaxRecordBytes) return std::nullopt;
  const uint64_t measured = n_measured * (sizeof(Sha256::Value) + uint64_t{shape.n_layers} * sizeof(double));
  const uint64_t bytes = sizeof(Head) + *centers + measured + sizeof(Sha256::Value);
  return bytes <= kMaxRecordBytes ? std::optional(bytes) : std::nullopt;
}

Sha256::Value digest_of(std::string_view bytes) { return Sha256().add(std::as_bytes(std::span(bytes))).finish(); }

bool is_finite(uint16_t half) { return (half & 0x7c00) != 0x7c00; }
bool is_divergence(double value) { return value == kNotMeasured || (std::isfinite(value) && value >= 0); }

Status refuse(const char* why) { return error(Code::corrupt_input, "not a usable record of keys: {}", why); }

// Reads what is known to be there.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  void take(T* to, size_t n) {
    std::memcpy(to, bytes_.data(), n * sizeof(T));
    bytes_.remove_prefix(n * sizeof(T));
  }

 private:
  std::string_view bytes_;
};

template <typename T>
void put(std::string& bytes, const T* from, size_t n) {
  bytes.append(reinterpret_cast<const char*>(from), n * sizeof(T));
}

}  // namespace

std::optional<double> KvRecord::divergence(const Sha256::Value& codec, uint32_t layer) const {
  for (const Measured& entry : measured)
    if (entry.codec == codec && entry.divergence[layer] != kNotMeasured) return entry.divergence[layer];
  return std::nullopt;
}

void KvRecord::set_divergence(const Sha256::Value& codec, uint32_t layer, double value) {
  auto entry = std::find_if(measured.begin(), measured.end(), [&](const Measured& m) { return m.codec == codec; });
  if (entry == measured.end()) {
    if (measured.size() == kMaxMeasured) measured.erase(measured.begin());
    entry = measured.insert(measured.end(), {codec, std::vector<double>(shape.n_layers, kNotMeasured)});
  }
  entry->divergence[layer] = value;
}

void KvRecord::merge(const KvRecord& other) {
  if (other.shape != shape) return;
  for (const Measured& theirs : other.measured) {
    const auto ours = std::find_if(measured.begin(), measured.end(), [&](const Measured& m) { return m.codec == theirs.codec; });
    if (ours == measured.end()) {
      if (measured.size() < kMaxMeasured) measured.push_back(theirs);
      continue;
    }
    for (uint32_t layer = 0; layer < shape.n_layers; ++layer)
      if (ours->divergence[layer] == kNotMeasured) ours->divergence[layer] = theirs.divergence[layer];
  }
}

std::vector<uint16_t> to_halves(const std::vector<std::vector<float>>& centers) {
  std::vector<uint16_t> halves;
  for (const std::vector<float>& layer : centers)
    for (const float x : layer) halves.push_back(turbo_f32_to_f16(x));
  return halves;
}

std::vector<std::vector<float>> to_floats(const std::vector<uint16_t>& halves, const KvShape& shape) {
  const uint64_t width = uint64_t{shape.n_kv_heads} * shape.head_dim;
  std::vector<std::vector<float>> centers(shape.n_layers, std::vector<float>(width));
  for (uint32_t layer = 0; layer < shape.n_layers; ++layer)
    for (uint64_t e = 0; e < width; ++e) centers[layer][e] = turbo_f16_to_f32(halves[layer * width + e]);
  return centers;
}

std::string write_record(const KvRecord& record) {
  const std::optional<uint64_t> size = record_bytes(record.shape, record.measured.size());
  if (!size) return {};
  Head head;
  head.n_layers = record.shape.n_layers;
  head.n_kv_heads = record.shape.n_kv_heads;
  head.head_dim = record.shape.head_dim;
  head.n_measured = static_cast<uint32_t>(record.measured.size());
  head.model = record.model;
  head.conditions = record.conditions;
  std::string bytes;
  bytes.reserve(*size);
  put(bytes, &head, 1);
  put(bytes, record.centers.data(), record.centers.size());
  for (const KvRecord::Measured& entry : record.measured) {
    put(bytes, entry.codec.data(), entry.codec.size());
    put(bytes, entry.divergence.data(), entry.divergence.size());
  }
  const Sha256::Value digest = digest_of(bytes);
  put(bytes, digest.data(), digest.size());
  return bytes;
}

Result<KvRecord> read_record(std::string_view bytes) {
  Head head;
  const Head plain;
  if (bytes.size() < sizeof head || std::memcmp(bytes.data(), plain.magic, sizeof plain.magic) != 0) return refuse("it does not begin like one of this version");
  Cursor cursor(bytes);
  cursor.take(&head, 1);
  KvRecord record;
  record.shape = {head.n_layers, head.n_kv_heads, head.head_dim};
  record.model = head.model;
  record.conditions = head.conditions;
  const std::optional<uint64_t> size = record_bytes(record.shape, head.n_measured);
  if (!size || bytes.size() != *size) return refuse("its size is not what its head says");
  const size_t end = bytes.size() - sizeof(Sha256::Value);
  const Sha256::Value digest = digest_of(bytes.substr(0, end));
  if (std::memcmp(bytes.data() + end, digest.data(), digest.size()) != 0) return refuse("it is damaged");

  record.centers.resize(uint64_t{head.n_layers} * head.n_kv_heads * head.head_dim);
  cursor.take(record.centers.data(), record.centers.size());
  if (!std::all_of(record.centers.begin(), record.centers.end(), is_finite)) return refuse("a center is no number");
  for (uint32_t i = 0; i < head.n_measured; ++i) {
    KvRecord::Measured& entry = record.measured.emplace_back();
    cursor.take(entry.codec.data(), entry.codec.size());
    entry.divergence.resize(head.n_layers);
    cursor.take(entry.divergence.data(), entry.divergence.size());
    if (!std::all_of(entry.divergence.begin(), entry.divergence.end(), is_divergence)) return refuse("a divergence is no number");
  }
  return record;
}

}  // namespace turbo::engine
