#include "text/template/json_value.h"

#include <nlohmann/json.hpp>

namespace turbo::text::jinja {

Value value_of(Heap& heap, const nlohmann::ordered_json& json, size_t depth) {
  using Type = nlohmann::ordered_json::value_t;
  heap.check_depth(depth);
  switch (json.type()) {
    case Type::boolean: return Value::boolean(json.get<bool>());
    case Type::number_integer: return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      uint64_t n = json.get<uint64_t>();
      return n <= INT64_MAX ? Value::integer(static_cast<int64_t>(n)) : Value::real(static_cast<double>(n));
    }
    case Type::number_float: return Value::real(json.get<double>());
    case Type::string: return heap.string(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      heap.reserve(json.size() * sizeof(Value));
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(value_of(heap, item, depth + 1));
      return heap.list(std::move(items));
    }
    case Type::object: {
      Dict* dict = heap.new_dict();
      for (auto& [key, item] : json.items()) dict->set(heap, heap.string(key), value_of(heap, item, depth + 1));
      return Value::object(Kind::dict, dict);
    }
    default: return Value::none();
  }
}

}  // namespace turbo::text::jinja
