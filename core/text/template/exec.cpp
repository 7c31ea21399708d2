// Statements of a template. Expressions are in eval.cpp.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "text/template/builtins.h"
#include "text/template/format.h"
#include "text/template/interpreter.h"
#include "text/template/json_value.h"
#include "text/template/nesting.h"

namespace turbo::text::jinja {

namespace {

/// Puts a member back on every way out of a block.
template <typename T>
class Restore {
 public:
  explicit Restore(T& place) : place_(place), saved_(place) {}
  ~Restore() { place_ = std::move(saved_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& place_;
  T saved_;
};

std::shared_ptr<Scope> nested(const std::shared_ptr<Scope>& parent) { return std::make_shared<Scope>(Scope{parent, {}}); }

}  // namespace

Interpreter::Interpreter(const Ast& ast, Heap& heap, const RenderOptions& options)
    : ast_(ast), heap_(heap), options_(options), scope_(std::make_shared<Scope>()) {}

std::string Interpreter::run(const nlohmann::ordered_json& variables) {
  for (size_t symbol = 0; symbol < ast_.symbols.size(); ++symbol) {
    const Builtin* builtin = find_global(ast_.symbols.name(static_cast<int>(symbol)));
    if (!builtin) continue;
    auto* function = heap_.make<BoundFunction>(std::string(builtin->name), [builtin](Interpreter& in, Arguments& arguments) {
      return call_builtin(in, *builtin, Value(), arguments);
    });
    scope_->set(static_cast<int>(symbol), Value::object(Kind::callable, function));
  }
  scope_ = nested(scope_);
  for (auto& [name, json] : variables.items()) {
    // Variables that the template never names need no conversion.
    if (int symbol = ast_.symbols.find(name); symbol >= 0) scope_->set(symbol, value_of(heap_, json));
  }
  std::string out;
  out_ = &out;
  execute(ast_.body);
  return out;
}

void Interpreter::write(std::string_view text) {
  size_t limit = heap_.limits().max_output_bytes;
  if (text.size() > limit - std::min(limit, out_->size())) heap_.exhausted("more than {} bytes of output", limit);
  heap_.work(text.size());
  if (n_captures_ > 0) heap_.charge(text.size());
  out_->append(text);
}

// Runs `action` with its output collected into a string value.
template <typename Action>
Value Interpreter::capture(Action action) {
  std::string text;
  {
    Restore out(out_);
    Restore count(n_captures_);
    out_ = &text;
    ++n_captures_;
    action();
  }
  heap_.release(text.size());
  return heap_.string(std::move(text));
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const auto& stmt : body) {
    if (Flow flow = execute(*stmt); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Stmt& stmt) {
  heap_.step();
  heap_.line = stmt.line;
  Nesting nesting(*this);
  switch (stmt.type) {
    case StmtType::output:
      if (stmt.exprs.empty()) {
        write(stmt.text.text());
      } else {
        Value value = eval(*stmt.exprs[0]);
        value.is_string() ? write(value.text()) : write(text_of(value));
      }
      return Flow::normal;
    case StmtType::if_chain: return execute_if(stmt);
    case StmtType::for_loop: return execute_for(stmt);
    case StmtType::set:
      assign(*stmt.exprs[0], eval(*stmt.exprs[1]));
      return Flow::normal;
    case StmtType::set_block:
    case StmtType::filter_block: return execute_capture(stmt);
    case StmtType::macro:
      scope_->set(stmt.symbol, define_macro(*stmt.signature, stmt.branches[0]));
      return Flow::normal;
    case StmtType::call_block:
      execute_call_block(stmt);
      return Flow::normal;
    case StmtType::with:
    case StmtType::scope: return execute_with(stmt);
    case StmtType::loop_break: return Flow::loop_break;
    case StmtType::loop_continue: return Flow::loop_continue;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_if(const Stmt& stmt) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i) {
    if (truthy(eval(*stmt.exprs[i]))) return execute(stmt.branches[i]);
  }
  return stmt.branches.size() > stmt.exprs.size() ? execute(stmt.branches.back()) : Flow::normal;
}

Interpreter::Flow Interpreter::execute_for(const Stmt& stmt) { return run_loop(stmt, eval(*stmt.exprs[1]), 0); }

// The items to visit: those of the iterable that pass the statement's own `if`.
std::vector<Value> Interpreter::loop_items(const Stmt& stmt, const Value& iterable) {
  std::vector<Value> items = iterate(heap_, iterable);
  if (!stmt.exprs[2]) return items;
  std::vector<Value> kept;
  Restore scope(scope_);
  std::shared_ptr<Scope> outer = scope_;
  for (Value& item : items) {
    scope_ = nested(outer);
    assign(*stmt.exprs[0], item);
    if (truthy(eval(*stmt.exprs[2]))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, const Value& iterable, size_t depth0) {
  auto* loop = heap_.make<Loop>();
  loop->items = loop_items(stmt, iterable);
  loop->n_items = loop->items.size();
  heap_.charge_items(loop->n_items);
  loop->depth0 = depth0;
  Restore scope(scope_);
  std::shared_ptr<Scope> outer = scope_;
  if (stmt.flag) {
    loop->recurse = [this, &stmt, outer, depth0](Interpreter&, const Value& items) {
      Nesting nesting(*this);
      if (depth0 + 1 > heap_.limits().max_depth) heap_.exhausted("recursive loop nested too deeply");
      return capture([&] {
        Restore inner(scope_);
        scope_ = outer;
        run_loop(stmt, items, depth0 + 1);
      });
    };
  }
  static const std::string kLoop = "loop";
  bool completed_one = false;
  int loop_symbol = ast_.symbols.find(kLoop);
  for (; loop->index0 < loop->n_items; ++loop->index0) {
    heap_.step();
    scope_ = nested(outer);
    if (loop_symbol >= 0) scope_->set(loop_symbol, Value::object(Kind::loop, loop));
    assign(*stmt.exprs[0], loop->items[loop->index0]);
    Flow body_flow = execute(stmt.branches[0]);
    if (body_flow == Flow::loop_break) break;
    completed_one |= body_flow == Flow::normal;
  }
  Flow flow = Flow::normal;
  // As in Jinja, `else` runs unless some round reached the end of the body.
  if (!completed_one) {
    scope_ = nested(outer);
    flow = execute(stmt.branches[1]);
  }
  heap_.release(loop->n_items * sizeof(Value));
  std::vector<Value>().swap(loop->items);
  loop->recurse = nullptr;
  return flow;
}

// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}.
Interpreter::Flow Interpreter::execute_capture(const Stmt& stmt) {
  Flow flow = Flow::normal;
  Value text = capture([&] {
    Restore scope(scope_);
    scope_ = nested(scope_);
    flow = execute(stmt.branches[0]);
  });
  bool is_set = stmt.type == StmtType::set_block;
  const Expr* chain = stmt.exprs[is_set ? 1 : 0].get();
  if (chain) {
    Restore input(filter_block_input_);
    filter_block_input_ = &text;
    text = Value(eval(*chain));
  }
  if (is_set) {
    assign(*stmt.exprs[0], std::move(text));
  } else {
    write(text_of(text));
  }
  return flow;
}

Interpreter::Flow Interpreter::execute_with(const Stmt& stmt) {
  Restore scope(scope_);
  std::shared_ptr<Scope> inner = nested(scope_);
  // Every value is computed before any of the names exists.
  std::vector<Value> values;
  for (size_t i = 1; i < stmt.exprs.size(); i += 2) values.push_back(eval(*stmt.exprs[i]));
  scope_ = inner;
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.exprs[2 * i], std::move(values[i]));
  return execute(stmt.branches[0]);
}

void Interpreter::assign(const Expr& target, Value value) {
  if (target.type == ExprType::name) {
    heap_.step(scope_->variables.size() / 16);
    scope_->set(target.symbol, std::move(value));
    return;
  }
  if (target.type == ExprType::attribute) {
    Value base = eval(*target.children[0]);
    if (!base.is(Kind::name_space)) heap_.fail("cannot assign an attribute of a value that is not a namespace");
    base.dict().set(heap_, target.value, std::move(value));
    return;
  }
  std::vector<Value> items = iterate(heap_, value);
  if (items.size() != target.children.size()) {
    heap_.fail("cannot unpack {} values into {} names", items.size(), target.children.size());
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.children[i], std::move(items[i]));
}

Value Interpreter::define_macro(const Signature& signature, const Body& body) {
  auto* macro = heap_.make<Macro>();
  macro->signature = &signature;
  macro->body = &body;
  macro->closure = scope_;
  return Value::object(Kind::callable, macro);
}

void Interpreter::execute_call_block(const Stmt& stmt) {
  const Expr& call_expr = *stmt.exprs[0];
  Value caller = define_macro(*stmt.signature, stmt.branches[0]);
  Value function = eval(*call_expr.children[0]);
  Arguments arguments = eval_arguments(call_expr.args);
  arguments.named.emplace_back("caller", std::move(caller));
  heap_.line = stmt.line;
  write(text_of(call(function, arguments)));
}

Value Macro::call(Interpreter& interpreter, Arguments& arguments) { return interpreter.run_macro(*this, arguments); }

Value Macro::attribute(Interpreter& interpreter, std::string_view attribute_name) {
  Heap& heap = interpreter.heap();
  if (attribute_name == "name") return heap.string(signature->name);
  if (attribute_name == "catch_kwargs") return Value::boolean(signature->uses_kwargs);
  if (attribute_name == "catch_varargs") return Value::boolean(signature->uses_varargs);
  if (attribute_name == "caller") return Value::boolean(signature->uses_caller);
  if (attribute_name != "arguments") return Value();
  std::vector<Value> names;
  for (const std::string& parameter : signature->parameter_names) names.push_back(heap.string(parameter));
  return heap.tuple(std::move(names));
}

namespace {

Value take_named(Arguments& arguments, const std::string& name, bool& found) {
  for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
    if (at->first != name) continue;
    Value value = std::move(at->second);
    arguments.named.erase(at);
    found = true;
    return value;
  }
  found = false;
  return Value();
}

}  // namespace

Value Interpreter::run_macro(const Macro& macro, Arguments& arguments) {
  const Signature& signature = *macro.signature;
  if (call_depth_ >= heap_.limits().max_depth) {
    heap_.exhausted("macro calls nested deeper than {}", heap_.limits().max_depth);
  }
  Restore depth(call_depth_);
  ++call_depth_;
  Restore scope(scope_);
  scope_ = nested(macro.closure);
  size_t n = signature.parameters.size();
  size_t first_default = n - signature.defaults.size();
  for (size_t i = 0; i < n; ++i) {
    const std::string& name = signature.parameter_names[i];
    bool found = false;
    Value value = take_named(arguments, name, found);
    if (i < arguments.positional.size()) {
      if (found) heap_.fail("macro '{}' got two values for '{}'", signature.name, name);
      value = arguments.positional[i];
    } else if (!found && i >= first_default) {
      value = eval(*signature.defaults[i - first_default]);
    } else if (!found) {
      value = heap_.undefined(fmt::format("parameter '{}' was not provided", name));
    }
    scope_->set(signature.parameters[i], std::move(value));
  }
  auto set_special = [&](const char* name, Value value) {
    if (int symbol = ast_.symbols.find(name); symbol >= 0) scope_->set(symbol, std::move(value));
  };
  if (signature.uses_caller) {
    bool found = false;
    Value caller = take_named(arguments, "caller", found);
    set_special("caller", found ? caller : heap_.undefined("No caller defined"));
  }
  if (signature.uses_kwargs) {
    Dict* rest = heap_.new_dict();
    for (auto& [name, value] : arguments.named) rest->set(heap_, heap_.string(name), value);
    set_special("kwargs", Value::object(Kind::dict, rest));
  } else if (!arguments.named.empty()) {
    heap_.fail("macro '{}' takes no argument '{}'", signature.name, arguments.named[0].first.substr(0, 60));
  }
  if (signature.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = n; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
    set_special("varargs", heap_.tuple(std::move(rest)));
  } else if (arguments.positional.size() > n) {
    heap_.fail("macro '{}' takes at most {} arguments", signature.name, n);
  }
  return capture([&] { execute(*macro.body); });
}

}  // namespace turbo::text::jinja
