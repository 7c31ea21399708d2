// The parsed form of a template. Immutable after parsing, so threads share it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace turbo::text::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class ExprType : uint8_t {
  constant,      ///< value
  name,          ///< symbol
  list, tuple,   ///< children
  dict,          ///< children: key, value, key, value, ...
  negate, plus, logical_not,   ///< children[0]
  arithmetic,    ///< children[0], then ops[i] applied with children[i + 1], left to right
  concat,        ///< children joined as text
  logical_and, logical_or,     ///< children
  compare,       ///< chain: children[i] ops[i] children[i + 1]
  conditional,   ///< children: condition, value, and alternative when given
  attribute,     ///< children[0] . text
  item,          ///< children[0] [ children[1] ]
  slice,         ///< children: start, stop, step, each may be null; only as children[1] of an item
  call,          ///< children[0] ( args )
  filter,        ///< children[0] | text(args); children[0] is null at the head of a filter block
  test,          ///< children[0] is text(args)
};

enum class Op : uint8_t { add, sub, mul, div, floor_div, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };

struct CallArgument {
  enum class Form : uint8_t { positional, named, spread_list, spread_dict } form;
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprType type;
  int line;
  int symbol = -1;
  std::string text;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<Op> ops;
  std::vector<CallArgument> args;
};

enum class StmtType : uint8_t {
  output,         ///< text, or exprs[0] when there is one
  if_chain,       ///< exprs[i] guards branches[i]; a last branch without a condition is the else
  for_loop,       ///< exprs: target, iterable, filter (may be null); branches: body, else; flag: recursive
  set,            ///< exprs: target, value
  set_block,      ///< exprs: target, filter chain (may be null); branches[0]
  macro,          ///< symbol, signature, branches[0]
  call_block,     ///< exprs[0] is the call; signature; branches[0]
  filter_block,   ///< exprs[0] is the filter chain; branches[0]
  with,           ///< exprs: target, value, target, value, ...; branches[0]
  scope,          ///< branches[0] in a scope of its own
  loop_break, loop_continue,
};

struct Signature {
  std::string name;
  std::vector<int> parameters;                 ///< symbols
  std::vector<std::string> parameter_names;
  std::vector<ExprPtr> defaults;               ///< for the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  StmtType type;
  int line;
  bool flag = false;
  int symbol = -1;
  Value text;
  std::vector<ExprPtr> exprs;
  std::vector<Body> branches;
  std::unique_ptr<Signature> signature;
};

/// Variable names as small numbers.
class Symbols {
 public:
  int intern(const std::string& name) {
    auto [at, added] = ids_.try_emplace(name, static_cast<int>(names_.size()));
    if (added) names_.push_back(name);
    return at->second;
  }
  int find(const std::string& name) const {
    auto at = ids_.find(name);
    return at == ids_.end() ? -1 : at->second;
  }
  const std::string& name(int id) const { return names_[static_cast<size_t>(id)]; }
  size_t size() const { return names_.size(); }

 private:
  std::unordered_map<std::string, int> ids_;
  std::vector<std::string> names_;
};

struct Ast {
  Symbols symbols;
  std::vector<bool> read;   ///< by symbol: whether some expression reads it
  Body body;
};

}  // namespace turbo::text::jinja
