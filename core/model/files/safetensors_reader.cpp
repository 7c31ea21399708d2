#include "model/files/safetensors_reader.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/checked.h"
#include "model/files/limits.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

constexpr const char* kDamaged = "the file is damaged or was not written by a safetensors library; download it again";

struct Entry {
  std::string name, dtype;
  std::vector<uint64_t> shape;    // outermost first, as in the file
  std::vector<uint64_t> offsets;  // begin, end
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

/// Takes the header's events one by one and accepts only the shape that the format allows:
/// { "__metadata__": {string: string}, name: {"dtype": string, "shape": [numbers], "data_offsets": [2 numbers]} }.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string problem;
  size_t position = 0;  // of a syntax error, 0 when the problem is not one
  Code code = Code::corrupt_input;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(double, const std::string& text) override { return unexpected("the number " + printable(text)); }
  bool number_integer(int64_t number) override { return unexpected(fmt::format("the number {}", number)); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(uint64_t number) override {
    if (place_ != Place::shape && place_ != Place::offsets) return unexpected(fmt::format("the number {}", number));
    auto& list = place_ == Place::shape ? entries.back().shape : entries.back().offsets;
    const size_t limit = place_ == Place::shape ? limits::safetensors_dims : 2;
    if (list.size() == limit) return refuse(fmt::format("expected at most {} numbers in '{}'", limit, field_));
    list.push_back(number);
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      metadata.emplace_back(field_, std::move(text));
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") return unexpected("a string");
    entries.back().dtype = std::move(text);
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::outside)
      place_ = Place::root;
    else if (place_ == Place::root)
      place_ = field_ == "__metadata__" ? Place::metadata : Place::tensor;
    else
      return unexpected("an object");
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      const Entry& entry = entries.back();
      if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets || entry.offsets.size() != 2) {
        return refuse("expected 'dtype', 'shape' and two 'data_offsets'");
      }
    }
    if (place_ == Place::metadata) seen_fields_.clear();
    place_ = place_ == Place::root ? Place::outside : Place::root;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }
  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }

  bool key(std::string& text) override {
    if (place_ == Place::root) return root_key(text);
    if (place_ == Place::metadata) {
      if (text.empty()) return refuse("a key of '__metadata__' is empty");
      if (!seen_fields_.insert(text).second)
        return refuse(fmt::format("'__metadata__' has '{}' twice", printable(text)));
      if (seen_fields_.size() > limits::keys) return too_many("keys in '__metadata__'", limits::keys);
      field_ = std::move(text);
      return true;
    }
    Entry& entry = entries.back();
    bool* seen = text == "dtype"          ? &entry.has_dtype
                 : text == "shape"        ? &entry.has_shape
                 : text == "data_offsets" ? &entry.has_offsets
                                          : nullptr;
    if (!seen) return refuse(fmt::format("unknown field '{}'", printable(text)));
    if (*seen) return refuse(fmt::format("field '{}' is there twice", text));
    *seen = true;
    field_ = std::move(text);
    return true;
  }

  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    if (problem.empty()) {
      problem = "it is not valid JSON";
      position = at;
    }
    return false;
  }

 private:
  enum class Place { outside, root, metadata, tensor, shape, offsets };

  bool root_key(std::string& text) {
    if (text.empty()) return refuse("a tensor name is empty");
    if (text.size() > limits::safetensors_name_bytes)
      return too_many("bytes in a tensor name", limits::safetensors_name_bytes);
    if (!names_.insert(text).second) return refuse(fmt::format("'{}' is there twice", printable(text)));
    field_ = text;
    if (text == "__metadata__") return true;
    if (entries.size() == limits::tensors) return too_many("tensors", limits::tensors);
    entries.emplace_back().name = std::move(text);
    return true;
  }

  bool refuse(std::string why) {
    problem = in_tensor() ? fmt::format("tensor '{}': {}", printable(entries.back().name), why) : std::move(why);
    return false;
  }
  bool too_many(std::string_view what, uint64_t limit) {
    code = Code::resource_exhausted;
    return refuse(fmt::format("expected at most {} {}", limit, what));
  }
  bool unexpected(std::string_view found) {
    switch (place_) {
      case Place::outside: return refuse(fmt::format("expected an object but found {}", found));
      case Place::root: return refuse(fmt::format("'{}': expected an object but found {}", printable(field_), found));
      case Place::metadata:
        return refuse(
            fmt::format("'__metadata__': key '{}': expected a string but found {}", printable(field_), found));
      default:
        return refuse(fmt::format("field '{}': expected {} but found {}", field_,
                                  field_ == "dtype" ? "a string" : "an array of numbers that are not negative", found));
    }
  }
  bool in_tensor() const { return place_ == Place::tensor || place_ == Place::shape || place_ == Place::offsets; }

  Place place_ = Place::outside;
  std::string field_;
  std::unordered_set<std::string> names_, seen_fields_;
};

struct Dtype {
  std::string_view name;
  uint32_t type;
};
constexpr Dtype kDtypes[] = {
    {"F32", type::f32},      {"F16", type::f16},         {"BF16", type::bf16},       {"F64", type::f64},
    {"I8", type::i8},        {"I16", type::i16},         {"I32", type::i32},         {"I64", type::i64},
    {"U8", type::u8},        {"U16", type::u16},         {"U32", type::u32},         {"U64", type::u64},
    {"BOOL", type::boolean}, {"F8_E4M3", type::f8_e4m3}, {"F8_E5M2", type::f8_e5m2}, {"F8_E8M0", type::f8_e8m0},
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& name, uint32_t file_index)
      : bytes_(bytes), name_(name), file_index_(file_index) {}

  Result<SafetensorsContents> read() {
    TURBO_ASSIGN(const std::string_view header, header_text());
    HeaderHandler handler;
    TURBO_RETURN_IF_ERROR(parse(header, &handler));
    SafetensorsContents contents;
    contents.metadata = Metadata(name_);
    for (auto& [key, text] : handler.metadata) {
      contents.metadata.add(std::move(key), Value{ValueType::string, std::move(text)}, 8);
    }
    std::stable_sort(handler.entries.begin(), handler.entries.end(),
                     [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
    uint64_t expected = 0;
    for (Entry& entry : handler.entries) {
      TURBO_ASSIGN(Tensor tensor, to_tensor(entry, expected));
      expected = entry.offsets[1];
      contents.tensors.push_back(std::move(tensor));
    }
    if (expected != data_.size()) {
      return corrupt("data", fmt::format("expected {} bytes of tensors but the file holds {}", expected, data_.size()));
    }
    return contents;
  }

 private:
  Status corrupt(std::string_view where, std::string_view why) const {
    return error(Code::corrupt_input, "{}: {}: {}", name_, where, why).with_hint(kDamaged);
  }

  Result<std::string_view> header_text() {
    if (bytes_.size() < 8) {
      return corrupt("header length", fmt::format("expected 8 bytes but the file has {}", bytes_.size()));
    }
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), 8);
    if (length > limits::safetensors_header_bytes) {
      return corrupt("header length",
                     fmt::format("expected at most {} bytes but found {}", limits::safetensors_header_bytes, length));
    }
    if (length < 2 || length > bytes_.size() - 8) {
      return corrupt("header length", fmt::format("expected 2 to {} bytes but found {}", bytes_.size() - 8, length));
    }
    data_ = bytes_.subspan(8 + length);
    return std::string_view(reinterpret_cast<const char*>(bytes_.data() + 8), length);
  }

  Status parse(std::string_view header, HeaderHandler* handler) const {
    if (header[0] != '{') return corrupt("header", "invalid at byte 0: expected '{'");
    // The JSON library takes a NUL byte for the end of the text and would skip what follows.
    if (const size_t nul = header.find('\0'); nul != header.npos) {
      return corrupt("header", fmt::format("invalid at byte {}: a NUL byte", nul));
    }
    if (!is_utf8(header)) return corrupt("header", "it is not UTF-8 text");
    if (nlohmann::json::sax_parse(header, handler)) return Status::ok();
    std::string why = handler->problem;
    if (handler->position > 0) why = fmt::format("invalid at byte {}: {}", handler->position - 1, why);
    return Status(handler->code, fmt::format("{}: header: {}", name_, why), kDamaged);
  }

  Result<Tensor> to_tensor(const Entry& entry, uint64_t expected) const {
    const std::string where = fmt::format("tensor '{}'", printable(entry.name));
    const auto* dtype =
        std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& d) { return d.name == entry.dtype; });
    if (dtype == std::end(kDtypes)) {
      return error(Code::unsupported, "{}: {}: expected a known dtype but found '{}'", name_, where,
                   printable(entry.dtype))
          .with_hint("convert the tensor to F32, F16 or BF16");
    }
    Tensor tensor;
    tensor.name = entry.name;
    tensor.type = dtype->type;
    tensor.file_index = file_index_;
    tensor.dims.assign(entry.shape.rbegin(), entry.shape.rend());
    if (tensor.dims.empty()) tensor.dims.push_back(1);
    uint64_t elements = 1;
    for (uint64_t dim : tensor.dims) {
      if (dim == 0) return corrupt(where, fmt::format("shape {}: expected dimensions over 0", shape_text(tensor.dims)));
      const auto product = checked_mul(elements, dim);
      if (!product || *product > uint64_t(INT64_MAX))
        return corrupt(where, "its number of elements does not fit 63 bits");
      elements = *product;
    }
    const auto bytes = bytes_of(tensor.type_info(), elements);
    if (!bytes) return corrupt(where, "its size does not fit 64 bits");
    const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (begin > end) return corrupt(where, fmt::format("its data begins at byte {}, after its end at {}", begin, end));
    if (end > data_.size()) {
      return corrupt(
          where, fmt::format("its data ends at byte {} but the file holds {}; the download is probably incomplete", end,
                             data_.size()));
    }
    if (end - begin != *bytes) {
      return corrupt(where, fmt::format("shape {} of {} needs {} bytes but the offsets span {}",
                                        shape_text(tensor.dims), type_name(tensor.type), *bytes, end - begin));
    }
    if (begin != expected) {
      return corrupt(where, fmt::format("expected its data at byte {} but found {} ({})", expected, begin,
                                        begin < expected ? "tensors overlap" : "a gap"));
    }
    tensor.bytes = *bytes;
    tensor.data = data_.data() + begin;
    return tensor;
  }

  std::span<const std::byte> bytes_, data_;
  const std::string& name_;
  const uint32_t file_index_;
};

}  // namespace

Result<SafetensorsContents> read_safetensors(std::span<const std::byte> bytes, const std::string& name,
                                             uint32_t file_index) {
  return Reader(bytes, name, file_index).read();
}

}  // namespace turbo::model
