#include "server/json_body.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

namespace turbo::server {
namespace {

using Member = Json::object_t::value_type;
using Members = std::vector<Member, Json::object_t::allocator_type>;

// Builds the value without the ordered map's own look-ups, which are linear per member.
class Builder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  Builder(int max_depth, size_t size) : max_depth_(static_cast<size_t>(max_depth)), size_(size) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool key(string_t& name) {
    key_ = std::move(name);
    return true;
  }
  bool end_object() {
    drop_duplicates(static_cast<Members&>(stack_.back()->get_ref<Json::object_t&>()));
    stack_.pop_back();
    return true;
  }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() {
    stack_.pop_back();
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
    // Not the library's text: it repeats what it read, which may be megabytes.
    constexpr int kNumberOverflow = 406;
    const char* why = e.id == kNumberOverflow ? "a number beyond the range of a double"
                      : position > size_      ? "the text ends too early"
                                              : "not what JSON allows here";
    error_ = fmt::format("byte {}: {}", position, why);
    return false;
  }

  Json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  template <typename T>
  Json* place(T&& value) {
    if (stack_.empty()) {
      root_ = Json(std::forward<T>(value));
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) return &parent.get_ref<Json::array_t&>().emplace_back(std::forward<T>(value));
    return &static_cast<Members&>(parent.get_ref<Json::object_t&>()).emplace_back(std::move(key_), Json(std::forward<T>(value))).second;
  }
  template <typename T>
  bool add(T&& value) {
    place(std::forward<T>(value));
    return true;
  }
  bool open(Json value) {
    if (stack_.size() >= max_depth_) {
      error_ = fmt::format("nested deeper than {}", max_depth_);
      return false;
    }
    stack_.push_back(place(std::move(value)));
    return true;
  }
  static void drop_duplicates(Members& members) {
    if (members.size() < 2) return;
    std::vector<uint32_t> order(members.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return members[a].first < members[b].first; });
    std::vector<bool> dropped(members.size());
    bool any = false;
    for (size_t i = 0; i + 1 < order.size(); ++i)
      if (members[order[i]].first == members[order[i + 1]].first) any = dropped[order[i]] = true;
    if (!any) return;
    spdlog::debug("a request body repeats a JSON key: the last one counts");
    Members kept;
    kept.reserve(members.size());
    for (size_t i = 0; i < members.size(); ++i)
      if (!dropped[i]) kept.emplace_back(members[i].first, std::move(members[i].second));
    members.swap(kept);
  }

  const size_t max_depth_, size_;
  Json root_;
  std::vector<Json*> stack_;
  std::string key_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, int max_depth) {
  try {
    Builder builder(max_depth, text.size());
    if (!Json::sax_parse(text.begin(), text.end(), &builder))
      return error(Code::invalid_argument, "the body is not valid JSON: {}", builder.error());
    return builder.take();
  } catch (const std::exception& e) {
    spdlog::warn("a request body of {} bytes could not be read: {:.200}", text.size(), e.what());
    return error(Code::invalid_argument, "the body is not valid JSON: it cannot be read");
  }
}

std::string to_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace turbo::server
