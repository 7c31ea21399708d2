// From type numbers to layouts: replays the offset rule, and tells apart the layouts that share the numbers 40 and 42.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "model/files/gguf_reader.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

constexpr uint32_t kObsoleteQ1 = 0xFFFFFFFF;  // 32 weights in 6 bytes under number 40 or 42, in two early forks
constexpr TypeInfo kObsoleteQ1Info{kObsoleteQ1, "obsolete q1_0", TypeKind::quantized, 32, 6, 0};

constexpr const char* kDamaged = "the file is damaged or was written by a faulty converter; fetch or convert it again";

/// What the two shared numbers are taken to mean.
struct Reading {
  const TypeInfo* number_40 = find_type(type::nvfp4);
  const TypeInfo* number_42 = find_type(type::q2_0_g64);
};

bool is_retired(uint32_t number) {
  return number == 4 || number == 5 || (number >= 31 && number <= 33) || (number >= 36 && number <= 38);
}

class Layout {
 public:
  Layout(const std::vector<GgufDescriptor>& tensors, uint64_t data_bytes, uint64_t alignment, const std::string& name)
      : tensors_(tensors), data_bytes_(data_bytes), alignment_(alignment), name_(name) {}

  Status check_numbers() {
    for (const GgufDescriptor& tensor : tensors_) {
      const uint32_t number = tensor.type_number;
      if (is_retired(number)) {
        return refuse(Code::unsupported, tensor, fmt::format("type {} is a retired layout", number))
            .with_hint("convert the model again with a current converter");
      }
      // Numbers from 65536 on are this program's own and never valid in a file.
      if (number >= 0x10000 || !find_type(number)) {
        return refuse(Code::unsupported, tensor,
                      fmt::format("expected a known type but found type {}", int32_t(number)))
            .with_hint("the file needs a newer turbo, or a type of another program's own");
      }
      has_40_ |= number == type::nvfp4;
      has_42_ |= number == type::q2_0_g64;
    }
    return Status::ok();
  }

  /// The one reading that reproduces every offset.
  Result<Reading> resolve() const {
    const std::vector<Reading> readings = candidates();
    std::vector<Reading> fitting, exact;
    for (const Reading& reading : readings) {
      uint64_t end = 0;
      if (!replay(reading, &end)) continue;
      fitting.push_back(reading);
      if (data_bytes_ == end || checked_align_up(end, alignment_) == data_bytes_) exact.push_back(reading);
    }
    if (fitting.size() > 1 && exact.size() == 1) fitting = exact;  // offsets alone do not show the last tensor's size
    if (fitting.empty()) {
      Status why = replay(readings.front(), nullptr);
      if (readings.size() == 1) return why;
      return why.with_hint("no known layout of the type numbers 40 and 42 fits the offsets in the file; " +
                           std::string(kDamaged));
    }
    if (fitting.size() > 1) {
      return error(Code::unsupported,
                   "{}: tensor table: type number {} stands for several layouts and more than one fits this file",
                   name_, has_42_ ? 42 : 40)
          .with_hint("use a file whose types have numbers of their own, such as Q1_0 (41) or PQ2_0 (142)");
    }
    const Reading& reading = fitting.front();
    if (reading.number_40 == &kObsoleteQ1Info || reading.number_42 == &kObsoleteQ1Info) {
      return error(Code::unsupported,
                   "{}: tensor table: type number {} is used for an obsolete 1-bit layout (32 weights in 6 bytes)",
                   name_, reading.number_42 == &kObsoleteQ1Info ? 42 : 40)
          .with_hint("download the current Q1_0 file of this model (type number 41)");
    }
    return reading;
  }

  static const TypeInfo& info_of(uint32_t number, const Reading& reading) {
    if (number == type::nvfp4) return *reading.number_40;
    if (number == type::q2_0_g64) return *reading.number_42;
    return *find_type(number);
  }

  /// Checks rows, sizes and offsets under a reading; `end` receives the last byte of the last tensor.
  Status replay(const Reading& reading, uint64_t* end) const {
    uint64_t expected = 0, last = 0;
    for (const GgufDescriptor& tensor : tensors_) {
      const TypeInfo& info = info_of(tensor.type_number, reading);
      if (tensor.dims[0] % info.block_weights != 0) {
        return refuse(Code::corrupt_input, tensor,
                      fmt::format("rows of {}: expected a multiple of {} elements but found {}", info.name,
                                  info.block_weights, tensor.dims[0]));
      }
      uint64_t elements = 1;
      for (uint64_t dim : tensor.dims) elements *= dim;  // fits: checked when the descriptor was read
      const auto bytes = bytes_of(info, elements);
      const auto stop = bytes ? checked_add(expected, *bytes) : std::nullopt;
      const auto next = stop ? checked_align_up(*stop, alignment_) : std::nullopt;
      if (!next) return refuse(Code::corrupt_input, tensor, "its size does not fit 64 bits");
      if (tensor.offset != expected) {
        return refuse(Code::corrupt_input, tensor,
                      fmt::format("expected offset {} in the data section but found {}", expected, tensor.offset));
      }
      if (*stop > data_bytes_) {
        return refuse(Code::corrupt_input, tensor,
                      fmt::format("expected its data to end at byte {} of the data section but the "
                                  "section has {} bytes",
                                  *stop, data_bytes_))
            .with_hint("the download is probably incomplete; fetch the file again");
      }
      expected = *next;
      last = *stop;
    }
    if (end) *end = last;
    return Status::ok();
  }

 private:
  Status refuse(Code code, const GgufDescriptor& tensor, std::string_view why) const {
    return error(code, "{}: tensor '{}': {}", name_, printable(tensor.name), why).with_hint(kDamaged);
  }

  std::vector<Reading> candidates() const {
    std::vector<const TypeInfo*> for_40 = {find_type(type::nvfp4)}, for_42 = {find_type(type::q2_0_g64)};
    if (has_40_) for_40.push_back(&kObsoleteQ1Info);
    if (has_42_) for_42.insert(for_42.end(), {find_type(type::q2_0_g128), &kObsoleteQ1Info});
    std::vector<Reading> readings;
    for (const TypeInfo* a : for_40) {
      for (const TypeInfo* b : for_42) readings.push_back({a, b});
    }
    return readings;
  }

  const std::vector<GgufDescriptor>& tensors_;
  const uint64_t data_bytes_, alignment_;
  const std::string& name_;
  bool has_40_ = false, has_42_ = false;
};

/// Two writers put the scale of a 34-byte block last and leave a mark in the metadata.
bool marked_scale_last(const Metadata& metadata) {
  const std::string* version = metadata.find_string("general.quantization_version");
  return (version && *version == "TQ2_0_G128") || metadata.contains("oxibonsai.quant_format");
}

/// A half that an encoder may have written as a scale: finite and not negative.
bool plausible_scale(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return half < 0x7C00;
}

/// Ternary weights never use the 2-bit code 3.
bool is_ternary(const std::byte* codes) {
  for (int i = 0; i < 32; ++i) {
    const auto byte = std::to_integer<uint8_t>(codes[i]);
    if (byte & (byte >> 1) & 0x55) return false;
  }
  return true;
}

/// Sampled blocks decide whether the scale of a 34-byte block comes first or last; the file's mark must agree.
Result<uint32_t> scale_place(const std::vector<Tensor>& tensors, const Metadata& metadata, const std::string& name) {
  constexpr uint64_t kBlockBytes = 34, kSamples = 256;
  bool first = true, last = true;
  for (const Tensor& tensor : tensors) {
    if (tensor.type != type::q2_0_g128) continue;
    const uint64_t blocks = tensor.bytes / kBlockBytes;
    const uint64_t samples = std::min(blocks, kSamples);
    for (uint64_t i = 0; i < samples; ++i) {
      const std::byte* block = tensor.data + blocks / samples * i * kBlockBytes;
      first = first && plausible_scale(block) && is_ternary(block + 2);
      last = last && plausible_scale(block + 32) && is_ternary(block);
    }
  }
  const bool marked = marked_scale_last(metadata);
  if (first && last) return marked ? type::q2_0_g128_scale_last : type::q2_0_g128;
  if (first && !marked) return type::q2_0_g128;
  if (last) return type::q2_0_g128_scale_last;
  return error(Code::unsupported, "{}: tensor table: type number 42 in blocks of 34 bytes: {}", name,
               first ? "the metadata says that the scale comes last but the data has it first"
                     : "the data is ternary neither with the scale first nor with the scale last")
      .with_hint("use a file whose types have numbers of their own, such as Q1_0 (41) or PQ2_0 (142)");
}

}  // namespace

Result<std::vector<Tensor>> lay_out_tensors(std::vector<GgufDescriptor> descriptors, std::span<const std::byte> data,
                                            uint64_t alignment, const Metadata& metadata, const std::string& name,
                                            uint32_t file_index) {
  Layout layout(descriptors, data.size(), alignment, name);
  TURBO_RETURN_IF_ERROR(layout.check_numbers());
  TURBO_ASSIGN(const Reading reading, layout.resolve());

  std::vector<Tensor> tensors;
  tensors.reserve(descriptors.size());
  bool wide_q2 = false, narrow_q2 = false;
  for (GgufDescriptor& from : descriptors) {
    const TypeInfo& info = Layout::info_of(from.type_number, reading);
    Tensor tensor;
    tensor.name = std::move(from.name);
    tensor.dims = std::move(from.dims);
    tensor.type = info.number;
    tensor.bytes = *bytes_of(info, tensor.n_elements());
    tensor.data = data.data() + from.offset;
    tensor.file_index = file_index;
    wide_q2 |= info.number == type::q2_0_g128;
    narrow_q2 |= info.number == type::q2_0_g64;
    tensors.push_back(std::move(tensor));
  }
  if (narrow_q2 && marked_scale_last(metadata)) {
    return error(Code::unsupported,
                 "{}: tensor table: the metadata promises blocks of 34 bytes under type number 42 but the offsets show "
                 "18 bytes",
                 name)
        .with_hint(kDamaged);
  }
  if (wide_q2) {
    TURBO_ASSIGN(const uint32_t place, scale_place(tensors, metadata, name));
    for (Tensor& tensor : tensors) {
      if (tensor.type == type::q2_0_g128) tensor.type = place;
    }
  }
  return tensors;
}

}  // namespace turbo::model
