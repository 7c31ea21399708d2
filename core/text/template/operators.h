// Arithmetic and slicing with Python's results and failures.
#pragma once

#include "text/template/ast.h"
#include "text/template/value.h"

namespace turbo::text::jinja {

Value arithmetic(Heap& heap, Op op, const Value& a, const Value& b);
Value negate(Heap& heap, const Value& v);
Value plus(Heap& heap, const Value& v);
/// text * count, as str.__mul__.
Value repeat_text(Heap& heap, std::string_view text, int64_t count);
/// base[start:stop:step]; parts that are None count as absent.
Value slice(Heap& heap, const Value& base, const Value& start, const Value& stop, const Value& step);

}  // namespace turbo::text::jinja
