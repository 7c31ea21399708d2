// Expressions. Statements are in exec.cpp; attributes, items and calls in access.cpp.
#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/interpreter.h"
#include "text/template/nesting.h"
#include "text/template/operators.h"

namespace turbo::text::jinja {

Value* Scope::find(int symbol) {
  for (auto& [id, value] : variables) {
    if (id == symbol) return &value;
  }
  return nullptr;
}

void Scope::set(int symbol, Value value) {
  if (Value* existing = find(symbol)) {
    *existing = std::move(value);
  } else {
    variables.emplace_back(symbol, std::move(value));
  }
}

std::string Interpreter::text_of(const Value& value) { return to_text(heap_, value); }

Value Interpreter::eval(const Expr& expr) {
  heap_.step();
  heap_.line = expr.line;
  Nesting nesting(*this);
  return eval_node(expr);
}

Value Interpreter::eval_node(const Expr& expr) {
  switch (expr.type) {
    case ExprType::constant: return expr.value;
    case ExprType::name: return eval_name(expr);
    case ExprType::list: return heap_.list(eval_all(expr.children));
    case ExprType::tuple: return heap_.tuple(eval_all(expr.children));
    case ExprType::dict: return eval_dict(expr);
    case ExprType::negate: return negate(heap_, eval(*expr.children[0]));
    case ExprType::plus: return plus(heap_, eval(*expr.children[0]));
    case ExprType::logical_not: return Value::boolean(!truthy(eval(*expr.children[0])));
    case ExprType::arithmetic: return eval_arithmetic(expr);
    case ExprType::concat: return eval_concat(expr);
    case ExprType::logical_and:
    case ExprType::logical_or: return eval_logical(expr);
    case ExprType::compare: return eval_compare(expr);
    case ExprType::conditional: return eval_conditional(expr);
    case ExprType::attribute: return attribute(eval(*expr.children[0]), expr.text);
    case ExprType::item: return eval_item(expr);
    case ExprType::call: return eval_call(expr);
    case ExprType::filter: return eval_filter(expr);
    case ExprType::test: return eval_test(expr);
    case ExprType::slice: break;   // only inside an item
  }
  heap_.fail("a slice stands alone");
}

Value Interpreter::eval_name(const Expr& expr) {
  for (Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    heap_.step(scope->variables.size() / 16);
    if (Value* value = scope->find(expr.symbol)) return *value;
  }
  return heap_.undefined(fmt::format("'{}' is undefined", ast_.symbols.name(expr.symbol).substr(0, 60)));
}

Value Interpreter::eval_dict(const Expr& expr) {
  Dict* dict = heap_.new_dict();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = eval(*expr.children[i]);
    require_hashable(heap_, key);
    dict->set(heap_, key, eval(*expr.children[i + 1]));
  }
  return Value::object(Kind::dict, dict);
}

Value Interpreter::eval_arithmetic(const Expr& expr) {
  Value result = eval(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.children[i + 1]);
    heap_.line = expr.line;
    result = arithmetic(heap_, expr.ops[i], result, right);
  }
  return result;
}

Value Interpreter::eval_concat(const Expr& expr) {
  std::string out;
  for (const ExprPtr& child : expr.children) {
    Value part = eval(*child);
    if (part.is_string()) {
      heap_.reserve(out.size() + part.text().size());
      out += part.text();
    } else {
      out += text_of(part);
    }
  }
  return heap_.string(std::move(out));
}

Value Interpreter::eval_logical(const Expr& expr) {
  bool stop_at = expr.type == ExprType::logical_or;
  for (size_t i = 0; i + 1 < expr.children.size(); ++i) {
    Value value = eval(*expr.children[i]);
    if (truthy(value) == stop_at) return value;
  }
  return eval(*expr.children.back());
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.children[i + 1]);
    heap_.line = expr.line;
    bool holds = false;
    switch (expr.ops[i]) {
      case Op::eq: holds = equal(heap_, left, right); break;
      case Op::ne: holds = !equal(heap_, left, right); break;
      case Op::lt: holds = compare(heap_, left, right) < 0; break;
      case Op::le: holds = compare(heap_, left, right) <= 0; break;
      case Op::gt: holds = compare(heap_, left, right) > 0; break;
      case Op::ge: holds = compare(heap_, left, right) >= 0; break;
      case Op::in: holds = contains(heap_, right, left); break;
      default: holds = !contains(heap_, right, left); break;
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_conditional(const Expr& expr) {
  if (truthy(eval(*expr.children[0]))) return eval(*expr.children[1]);
  if (expr.children.size() > 2) return eval(*expr.children[2]);
  return heap_.undefined("the inline if-expression was false and has no else");
}

Value Interpreter::eval_item(const Expr& expr) {
  Value base = eval(*expr.children[0]);
  const Expr& index = *expr.children[1];
  if (index.type != ExprType::slice) return item(base, eval(index));
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) parts[i] = index.children[i] ? eval(*index.children[i]) : Value::none();
  return slice(heap_, base, parts[0], parts[1], parts[2]);
}

// base.method(...) is looked up and called at once, without building a bound method.
Value Interpreter::eval_call(const Expr& expr) {
  const Expr& callee = *expr.children[0];
  if (callee.type == ExprType::attribute) {
    Value base = eval(*callee.children[0]);
    if (const Builtin* method = find_method(base.kind(), callee.text)) {
      Arguments arguments = eval_arguments(expr.args);
      heap_.line = expr.line;
      return call_builtin(*this, *method, base, arguments);
    }
    Value function = attribute(base, callee.text);
    Arguments arguments = eval_arguments(expr.args);
    heap_.line = expr.line;
    return call(function, arguments);
  }
  Value function = eval(callee);
  Arguments arguments = eval_arguments(expr.args);
  heap_.line = expr.line;
  return call(function, arguments);
}

Value Interpreter::eval_filter(const Expr& expr) {
  Value base = expr.children[0] ? eval(*expr.children[0]) : *filter_block_input_;
  Arguments arguments = eval_arguments(expr.args);
  heap_.line = expr.line;
  return apply_filter(expr.text, base, arguments);
}

Value Interpreter::eval_test(const Expr& expr) {
  Value base = eval(*expr.children[0]);
  Arguments arguments = eval_arguments(expr.args);
  heap_.line = expr.line;
  return Value::boolean(apply_test(expr.text, base, arguments));
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> out;
  out.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) out.push_back(eval(*expr));
  return out;
}

Arguments Interpreter::eval_arguments(const std::vector<CallArgument>& args) {
  Arguments out;
  for (const CallArgument& arg : args) {
    Value value = eval(*arg.value);
    switch (arg.form) {
      case CallArgument::Form::positional: out.positional.push_back(std::move(value)); break;
      case CallArgument::Form::named: out.named.emplace_back(arg.name, std::move(value)); break;
      case CallArgument::Form::spread_list:
        for (Value& item : iterate(heap_, value)) out.positional.push_back(std::move(item));
        break;
      case CallArgument::Form::spread_dict:
        if (!value.is_mapping()) heap_.fail("argument after ** must be a mapping, not {}", type_name(value));
        for (auto& [key, item] : value.dict().entries) {
          if (!key.is_string()) heap_.fail("keywords must be strings");
          heap_.step();
          out.named.emplace_back(key.text(), item);
        }
        break;
    }
  }
  return out;
}

}  // namespace turbo::text::jinja
