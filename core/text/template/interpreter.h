// Walks the Ast of a template and writes its output. One Interpreter serves one render on one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/callable.h"
#include "text/template/value.h"

namespace turbo::text::jinja {

/// Variables of one block. Macros keep the scope they were defined in alive.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;

  Value* find(int symbol);
  void set(int symbol, Value value);
};

/// A macro, or the body of a call block as caller().
struct Macro final : Callable {
  const Signature* signature;
  const Body* body;
  std::shared_ptr<Scope> closure;

  std::string name() const override { return signature->name; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;
  Value attribute(Interpreter& interpreter, std::string_view name) override;
};

class Interpreter {
 public:
  Interpreter(const Ast& ast, Heap& heap, const RenderOptions& options);

  std::string run(const nlohmann::ordered_json& variables);

  Heap& heap() { return heap_; }
  const RenderOptions& options() const { return options_; }

  // What built-ins need.
  Value call(const Value& callee, Arguments& arguments);
  Value apply_filter(std::string_view name, const Value& value, Arguments& arguments);
  bool apply_test(std::string_view name, const Value& value, Arguments& arguments);
  /// base.name and base[key], Jinja's rules; undefined when there is no such thing.
  Value attribute(const Value& base, std::string_view name);
  Value item(const Value& base, const Value& key);
  /// "a.b.0" as the attribute argument of map, sort, groupby and their kind; integers index.
  Value attribute_path(const Value& base, const Value& path);
  std::string text_of(const Value& value);
  Value run_macro(const Macro& macro, Arguments& arguments);

 private:
  enum class Flow : uint8_t { normal, loop_break, loop_continue };
  class Nesting;   ///< counts nested evaluation, the guard of the C++ stack

  // eval.cpp
  Value eval(const Expr& expr);
  Value eval_node(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_arithmetic(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_logical(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_conditional(const Expr& expr);
  Value eval_item(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_filter(const Expr& expr);
  Value eval_test(const Expr& expr);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs);
  Arguments eval_arguments(const std::vector<CallArgument>& args);

  // exec.cpp
  Flow execute(const Body& body);
  Flow execute(const Stmt& stmt);
  Flow execute_if(const Stmt& stmt);
  Flow execute_for(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt, const Value& iterable, size_t depth0);
  std::vector<Value> loop_items(const Stmt& stmt, const Value& iterable);
  Flow execute_capture(const Stmt& stmt);
  Flow execute_with(const Stmt& stmt);
  Value define_macro(const Signature& signature, const Body& body);
  void execute_call_block(const Stmt& stmt);
  void assign(const Expr& target, Value value);
  void write(std::string_view text);
  template <typename Action>
  Value capture(Action action);

  const Ast& ast_;
  Heap& heap_;
  const RenderOptions& options_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  size_t n_captures_ = 0;
  size_t nesting_ = 0;
  size_t call_depth_ = 0;
  const Value* filter_block_input_ = nullptr;   ///< the missing base of a filter block's chain
};

}  // namespace turbo::text::jinja
