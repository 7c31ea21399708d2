// Header, metadata and tensor descriptors. The layout of the data section is checked in gguf_layout.cpp.
#include "model/files/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/checked.h"
#include "model/files/limits.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

constexpr const char* kIncomplete = "the download is probably incomplete; fetch the file again";
constexpr const char* kDamaged = "the file is damaged or was written by a faulty converter; fetch or convert it again";

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name, uint32_t file_index)
      : bytes_(bytes), name_(name), file_index_(file_index) {}

  Result<GgufContents> read() {
    GgufContents contents;
    contents.metadata = Metadata(name_);
    TURBO_RETURN_IF_ERROR(read_header(&contents.version));
    for (uint64_t i = 0; i < n_keys_; ++i) TURBO_RETURN_IF_ERROR(read_pair(i, &contents.metadata));
    TURBO_ASSIGN(contents.alignment, alignment_of(contents.metadata));
    std::vector<GgufDescriptor> descriptors;
    descriptors.reserve(n_tensors_);
    for (uint64_t i = 0; i < n_tensors_; ++i) TURBO_RETURN_IF_ERROR(read_descriptor(i, &descriptors));

    const auto data_offset = checked_align_up(at_, contents.alignment);
    if (!data_offset) return corrupt("data section", "its offset does not fit 64 bits");
    contents.data_offset = *data_offset;
    if (n_tensors_ > 0 && *data_offset > bytes_.size()) {
      return corrupt(
          "data section",
          fmt::format("expected it to begin at byte {} but the file has {} bytes", *data_offset, bytes_.size()),
          kIncomplete);
    }
    const auto data = n_tensors_ > 0 ? bytes_.subspan(*data_offset) : std::span<const std::byte>();
    TURBO_ASSIGN(contents.tensors, lay_out_tensors(std::move(descriptors), data, contents.alignment, contents.metadata,
                                                   name_, file_index_));
    return contents;
  }

 private:
  uint64_t left() const { return bytes_.size() - at_; }

  Status corrupt(std::string_view where, std::string_view why, const char* hint = kDamaged) const {
    return error(Code::corrupt_input, "{}: {}: {}", name_, where, why).with_hint(hint);
  }
  Status over_limit(std::string_view where, std::string_view what, uint64_t limit, uint64_t found) const {
    return error(Code::resource_exhausted, "{}: {}: {}: expected at most {} but found {}", name_, where, what, limit,
                 found)
        .with_hint("no known model needs this much; the file is damaged or hostile");
  }
  Status truncated(std::string_view where, uint64_t wanted) const {
    return corrupt(where,
                   fmt::format("expected {} bytes at byte {} but the file has {} bytes", wanted, at_, bytes_.size()),
                   kIncomplete);
  }

  template <typename T>
  Status read_number(T* value, std::string_view where) {
    if (left() < sizeof(T)) return truncated(where, sizeof(T));
    std::memcpy(value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return Status::ok();
  }

  /// The view points into the file's bytes.
  Status read_string(std::string_view* text, std::string_view where, uint64_t limit) {
    uint64_t length = 0;
    TURBO_RETURN_IF_ERROR(read_number(&length, where));
    if (length > left()) {
      return corrupt(
          where,
          fmt::format("a string of {} bytes begins at byte {} but the file has {} bytes", length, at_, bytes_.size()),
          kIncomplete);
    }
    if (length > limit) return over_limit(where, "string bytes", limit, length);
    *text = {reinterpret_cast<const char*>(bytes_.data() + at_), size_t(length)};
    at_ += length;
    return Status::ok();
  }

  Status read_header(uint32_t* version) {
    // Smallest possible entries: key of 1 byte with a 1-byte value; tensor name of 1 byte with one dimension.
    constexpr uint64_t kPairBytes = 8 + 1 + 4 + 1, kDescriptorBytes = 8 + 1 + 4 + 8 + 4 + 8;
    char magic[4];
    TURBO_RETURN_IF_ERROR(read_number(&magic, "header"));
    if (std::memcmp(magic, "GGUF", 4) != 0) {
      return corrupt("header", fmt::format("expected the magic bytes 'GGUF' but found '{}'", printable({magic, 4})));
    }
    TURBO_RETURN_IF_ERROR(read_number(version, "header"));
    if (*version != 0 && (*version & 0xFFFF) == 0) {
      return error(Code::unsupported,
                   "{}: header: version field {:#x}: the file is in the other byte order (big-endian)", name_, *version)
          .with_hint("convert the model on, or for, a little-endian machine");
    }
    if (*version != 2 && *version != 3) {
      return error(Code::unsupported, "{}: header: expected GGUF version 2 or 3 but found {}", name_, *version)
          .with_hint(*version < 2 ? "convert the model again with a current converter"
                                  : "this turbo is too old for the file");
    }
    int64_t tensors = 0, keys = 0;
    TURBO_RETURN_IF_ERROR(read_number(&tensors, "header"));
    TURBO_RETURN_IF_ERROR(read_number(&keys, "header"));
    TURBO_RETURN_IF_ERROR(check_count("tensor count", tensors, kDescriptorBytes, limits::tensors));
    TURBO_RETURN_IF_ERROR(check_count("key count", keys, kPairBytes, limits::keys));
    n_tensors_ = uint64_t(tensors);
    n_keys_ = uint64_t(keys);
    return Status::ok();
  }

  Status check_count(const char* what, int64_t count, uint64_t bytes_each, uint64_t limit) const {
    if (count < 0)
      return corrupt("header", fmt::format("{}: expected a number that is not negative but found {}", what, count));
    const auto least = checked_mul(uint64_t(count), bytes_each);
    if (!least || *least > left()) {
      return corrupt("header",
                     fmt::format("{}: {} entries need more than the {} bytes left in the file", what, count, left()));
    }
    if (uint64_t(count) > limit) return over_limit("header", what, limit, uint64_t(count));
    return Status::ok();
  }

  Status read_pair(uint64_t i, Metadata* metadata) {
    const uint64_t position = at_;
    const std::string numbered = fmt::format("key {} at byte {}", i, position);
    std::string_view key;
    TURBO_RETURN_IF_ERROR(read_string(&key, numbered, limits::key_bytes));
    if (key.empty()) return corrupt(numbered, "the key is empty");
    if (!is_utf8(key)) return corrupt(numbered, fmt::format("the key '{}' is not UTF-8", printable(key)));
    const std::string where = fmt::format("key '{}'", printable(key));
    uint32_t type = 0;
    TURBO_RETURN_IF_ERROR(read_number(&type, where));
    Value value;
    TURBO_RETURN_IF_ERROR(read_value(ValueType(type), where, &value));
    if (at_ > limits::metadata_bytes) return over_limit(where, "metadata bytes", limits::metadata_bytes, at_);
    if (!metadata->add(std::string(key), std::move(value), position)) {
      for (const auto& entry : *metadata) {
        if (entry.key == key) {
          return corrupt(where, fmt::format("it is there twice, at byte {} and at byte {}", entry.position, position));
        }
      }
    }
    return Status::ok();
  }

  Status read_value(ValueType type, const std::string& where, Value* value) {
    value->type = type;
    switch (type) {
      case ValueType::u8: return read_scalar<uint8_t, uint64_t>(where, value);
      case ValueType::i8: return read_scalar<int8_t, int64_t>(where, value);
      case ValueType::u16: return read_scalar<uint16_t, uint64_t>(where, value);
      case ValueType::i16: return read_scalar<int16_t, int64_t>(where, value);
      case ValueType::u32: return read_scalar<uint32_t, uint64_t>(where, value);
      case ValueType::i32: return read_scalar<int32_t, int64_t>(where, value);
      case ValueType::u64: return read_scalar<uint64_t, uint64_t>(where, value);
      case ValueType::i64: return read_scalar<int64_t, int64_t>(where, value);
      case ValueType::f32: return read_scalar<float, double>(where, value);
      case ValueType::f64: return read_scalar<double, double>(where, value);
      case ValueType::boolean: {
        uint8_t byte = 0;
        TURBO_RETURN_IF_ERROR(read_number(&byte, where));
        if (byte > 1) return corrupt(where, fmt::format("expected a bool of 0 or 1 but found {}", byte));
        value->data = byte != 0;
        return Status::ok();
      }
      case ValueType::string: {
        std::string_view text;
        TURBO_RETURN_IF_ERROR(read_string(&text, where, limits::string_bytes));
        value->data = std::string(text);
        return Status::ok();
      }
      case ValueType::array: return read_array(where, value);
    }
    return corrupt(where, fmt::format("expected a value type from 0 to 12 but found {}", uint32_t(type)));
  }

  template <typename Stored, typename Kept>
  Status read_scalar(const std::string& where, Value* value) {
    Stored number{};
    TURBO_RETURN_IF_ERROR(read_number(&number, where));
    value->data = Kept(number);
    return Status::ok();
  }

  Status read_array(const std::string& where, Value* value) {
    uint32_t element = 0;
    uint64_t count = 0;
    TURBO_RETURN_IF_ERROR(read_number(&element, where));
    TURBO_RETURN_IF_ERROR(read_number(&count, where));
    const ValueType type = ValueType(element);
    if (type == ValueType::array) return corrupt(where, "an array of arrays is not allowed");
    const bool strings = type == ValueType::string;
    const uint64_t element_bytes = strings ? 8 : value_type_bytes(type);
    if (element_bytes == 0)
      return corrupt(where, fmt::format("expected an element type from 0 to 12 but found {}", element));
    const auto bytes = checked_mul(count, element_bytes);
    if (!bytes || *bytes > left()) {
      return corrupt(
          where, fmt::format("an array of {} elements needs more than the {} bytes left in the file", count, left()),
          kIncomplete);
    }
    if (count > limits::array_elements) return over_limit(where, "array elements", limits::array_elements, count);
    if (strings) return read_strings(where, count, value);
    std::string raw(reinterpret_cast<const char*>(bytes_.data() + at_), size_t(*bytes));
    if (type == ValueType::boolean && raw.find_first_not_of(std::string_view("\0\1", 2)) != std::string::npos) {
      return corrupt(where, "expected bools of 0 or 1");
    }
    at_ += *bytes;
    value->data = NumberArray(type, std::move(raw));
    return Status::ok();
  }

  Status read_strings(const std::string& where, uint64_t count, Value* value) {
    StringArray array;
    array.reserve(count, std::min<uint64_t>(count * 8, left()));
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view text;
      if (Status s = read_string(&text, where, limits::string_bytes); !s) {
        return Status(s.code(), fmt::format("{} (element {})", s.message(), i), s.hint());
      }
      array.push_back(text);
    }
    value->data = std::move(array);
    return Status::ok();
  }

  Result<uint64_t> alignment_of(const Metadata& metadata) const {
    constexpr const char* kKey = "general.alignment";
    if (!metadata.contains(kKey)) return uint64_t(32);
    TURBO_ASSIGN(const uint32_t alignment, metadata.get_u32(kKey));
    if (!std::has_single_bit(alignment) || alignment > limits::max_alignment) {
      return corrupt("key 'general.alignment'", fmt::format("expected a power of two from {} to {} but found {}",
                                                            limits::min_alignment, limits::max_alignment, alignment));
    }
    return uint64_t(alignment);
  }

  Status read_descriptor(uint64_t i, std::vector<GgufDescriptor>* descriptors) {
    GgufDescriptor tensor;
    tensor.position = at_;
    const std::string numbered = fmt::format("tensor {} at byte {}", i, at_);
    std::string_view name;
    TURBO_RETURN_IF_ERROR(read_string(&name, numbered, limits::gguf_name_bytes));
    if (name.empty()) return corrupt(numbered, "the name is empty");
    if (!is_utf8(name) || name.find('\0') != std::string_view::npos) {
      return corrupt(numbered, fmt::format("the name '{}' is not UTF-8 text", printable(name)));
    }
    const std::string where = fmt::format("tensor '{}'", printable(name));
    const auto [first, fresh] = names_.emplace(std::string(name), tensor.position);
    if (!fresh) {
      return corrupt(where,
                     fmt::format("it is there twice, at byte {} and at byte {}", first->second, tensor.position));
    }
    tensor.name = std::string(name);
    uint32_t n_dims = 0;
    TURBO_RETURN_IF_ERROR(read_number(&n_dims, where));
    if (n_dims == 0 || n_dims > limits::gguf_dims) {
      return corrupt(where, fmt::format("expected 1 to {} dimensions but found {}", limits::gguf_dims, n_dims));
    }
    TURBO_RETURN_IF_ERROR(read_dims(n_dims, where, &tensor));
    TURBO_RETURN_IF_ERROR(read_number(&tensor.type_number, where));
    TURBO_RETURN_IF_ERROR(read_number(&tensor.offset, where));
    descriptors->push_back(std::move(tensor));
    return Status::ok();
  }

  Status read_dims(uint32_t n_dims, const std::string& where, GgufDescriptor* tensor) {
    uint64_t elements = 1;
    for (uint32_t d = 0; d < n_dims; ++d) {
      uint64_t dim = 0;
      TURBO_RETURN_IF_ERROR(read_number(&dim, where));
      if (dim == 0 || dim > uint64_t(INT64_MAX)) {
        return corrupt(where, fmt::format("dimension {}: expected a number over 0 but found {}", d, int64_t(dim)));
      }
      const auto product = checked_mul(elements, dim);
      if (!product || *product > uint64_t(INT64_MAX))
        return corrupt(where, "its number of elements does not fit 63 bits");
      elements = *product;
      tensor->dims.push_back(dim);
    }
    return Status::ok();
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  const uint32_t file_index_;
  uint64_t at_ = 0;
  uint64_t n_tensors_ = 0, n_keys_ = 0;
  std::unordered_map<std::string, uint64_t> names_;  // tensor name -> position of its descriptor
};

}  // namespace

Result<GgufContents> read_gguf(std::span<const std::byte> bytes, const std::string& name, uint32_t file_index) {
  return Reader(bytes, name, file_index).read();
}

}  // namespace turbo::model
