// Expressions. Statements are in parser_statements.cpp.
#include "text/template/parser.h"

#include <algorithm>

namespace turbo::text::jinja {

namespace {

constexpr size_t kMaxNodes = 200'000;

}  // namespace

// Every construct that nests passes through one of these, so neither parsing nor evaluating can exhaust the stack.
class Parser::DepthGuard {
 public:
  explicit DepthGuard(Parser& parser, size_t levels = 1) : parser_(parser), levels_(levels) {
    parser_.depth_ += levels_;
    if (parser_.depth_ > parser_.limits_.max_depth) {
      parser_.depth_ -= levels_;
      throw TemplateError{Code::resource_exhausted,
                          fmt::format("nested deeper than {} levels", parser_.limits_.max_depth), parser_.current().line};
    }
  }
  ~DepthGuard() { parser_.depth_ -= levels_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  /// One more level for each link of a chain such as a.b.c, whose tree is as deep as the chain is long.
  void deepen() {
    if (++parser_.depth_ > parser_.limits_.max_depth) {
      --parser_.depth_;
      throw TemplateError{Code::resource_exhausted,
                          fmt::format("nested deeper than {} levels", parser_.limits_.max_depth), parser_.current().line};
    }
    ++levels_;
  }

 private:
  Parser& parser_;
  size_t levels_;
};

void Parser::fail_at(int line, std::string message) const {
  throw TemplateError{Code::invalid_argument, std::move(message), line};
}

bool Parser::skip_op(std::string_view op) {
  if (!current().is_op(op)) return false;
  ++pos_;
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  ++pos_;
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail(fmt::format("expected '{}', found {}", op, describe(current())));
}

std::string Parser::expect_name() {
  if (current().type != TokenType::name) fail("expected a name, found " + describe(current()));
  return take().text;
}

void Parser::count_node() {
  if (++n_nodes_ > kMaxNodes) {
    throw TemplateError{Code::resource_exhausted, fmt::format("more than {} expressions and statements", kMaxNodes),
                        current().line};
  }
}

ExprPtr Parser::node(ExprType type, int line) {
  count_node();
  auto expr = std::make_unique<Expr>();
  expr->type = type;
  expr->line = line;
  return expr;
}

int Parser::read_symbol(const std::string& name) {
  int symbol = ast_.symbols.intern(name);
  if (ast_.read.size() <= static_cast<size_t>(symbol)) ast_.read.resize(static_cast<size_t>(symbol) + 1);
  ast_.read[static_cast<size_t>(symbol)] = true;
  for (Signature* macro : open_macros_) {
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_caller |= name == "caller";
  }
  return symbol;
}

ExprPtr Parser::expression(bool with_conditional) {
  DepthGuard guard(*this);
  return with_conditional ? conditional() : logical(ExprType::logical_or);
}

ExprPtr Parser::conditional() {
  int line = current().line;
  ExprPtr value = logical(ExprType::logical_or);
  DepthGuard guard(*this);
  while (skip_name("if")) {
    guard.deepen();
    ExprPtr expr = node(ExprType::conditional, line);
    expr->children.push_back(logical(ExprType::logical_or));
    expr->children.push_back(std::move(value));
    if (skip_name("else")) {
      DepthGuard inner(*this);
      expr->children.push_back(conditional());
    }
    value = std::move(expr);
  }
  return value;
}

ExprPtr Parser::logical(ExprType type) {
  bool is_or = type == ExprType::logical_or;
  auto operand = [&] { return is_or ? logical(ExprType::logical_and) : negation(); };
  int line = current().line;
  ExprPtr first = operand();
  if (!current().is_name(is_or ? "or" : "and")) return first;
  ExprPtr expr = node(type, line);
  expr->children.push_back(std::move(first));
  while (skip_name(is_or ? "or" : "and")) expr->children.push_back(operand());
  return expr;
}

ExprPtr Parser::negation() {
  if (!current().is_name("not")) return comparison();
  DepthGuard guard(*this);
  ExprPtr expr = node(ExprType::logical_not, take().line);
  expr->children.push_back(negation());
  return expr;
}

ExprPtr Parser::comparison() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::eq}, {"!=", Op::ne}, {"<", Op::lt},
                                                              {"<=", Op::le}, {">", Op::gt},  {">=", Op::ge}};
  int line = current().line;
  ExprPtr first = sum();
  ExprPtr chain;
  while (true) {
    Op op;
    auto at = std::find_if(std::begin(kOps), std::end(kOps), [&](auto& o) { return current().is_op(o.first); });
    if (at != std::end(kOps)) {
      op = at->second;
    } else if (current().is_name("in")) {
      op = Op::in;
    } else if (current().is_name("not") && look_ahead().is_name("in")) {
      op = Op::not_in;
      ++pos_;
    } else {
      break;
    }
    ++pos_;
    if (!chain) {
      chain = node(ExprType::compare, line);
      chain->children.push_back(std::move(first));
    }
    chain->ops.push_back(op);
    chain->children.push_back(sum());
  }
  return chain ? std::move(chain) : std::move(first);
}

ExprPtr Parser::sum() {
  int line = current().line;
  ExprPtr first = concatenation();
  ExprPtr chain;
  while (current().is_op("+") || current().is_op("-")) {
    if (!chain) {
      chain = node(ExprType::arithmetic, line);
      chain->children.push_back(std::move(first));
    }
    chain->ops.push_back(take().text == "+" ? Op::add : Op::sub);
    chain->children.push_back(concatenation());
  }
  return chain ? std::move(chain) : std::move(first);
}

ExprPtr Parser::concatenation() {
  int line = current().line;
  ExprPtr first = product();
  if (!current().is_op("~")) return first;
  ExprPtr expr = node(ExprType::concat, line);
  expr->children.push_back(std::move(first));
  while (skip_op("~")) expr->children.push_back(product());
  return expr;
}

ExprPtr Parser::product() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"*", Op::mul}, {"/", Op::div}, {"//", Op::floor_div}, {"%", Op::mod}};
  int line = current().line;
  ExprPtr first = power();
  ExprPtr chain;
  while (true) {
    auto at = std::find_if(std::begin(kOps), std::end(kOps), [&](auto& o) { return current().is_op(o.first); });
    if (at == std::end(kOps)) break;
    ++pos_;
    if (!chain) {
      chain = node(ExprType::arithmetic, line);
      chain->children.push_back(std::move(first));
    }
    chain->ops.push_back(at->second);
    chain->children.push_back(power());
  }
  return chain ? std::move(chain) : std::move(first);
}

ExprPtr Parser::power() {
  int line = current().line;
  ExprPtr first = unary(true);
  if (!current().is_op("**")) return first;
  ExprPtr chain = node(ExprType::arithmetic, line);
  chain->children.push_back(std::move(first));
  while (skip_op("**")) {
    chain->ops.push_back(Op::pow);
    chain->children.push_back(unary(true));
  }
  return chain;
}

ExprPtr Parser::unary(bool with_filter) {
  ExprPtr expr;
  if (current().is_op("-") || current().is_op("+")) {
    DepthGuard guard(*this);
    Token sign = take();
    expr = node(sign.text == "-" ? ExprType::negate : ExprType::plus, sign.line);
    expr->children.push_back(unary(false));
  } else {
    expr = primary();
  }
  expr = postfix(std::move(expr));
  return with_filter ? filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::primary() {
  const Token& token = current();
  int line = token.line;
  switch (token.type) {
    case TokenType::name: return name_or_constant();
    case TokenType::string: return string_literal();
    case TokenType::integer:
    case TokenType::real: {
      ExprPtr expr = node(ExprType::constant, line);
      expr->value = token.type == TokenType::integer ? Value::integer(token.integer) : Value::real(token.real);
      ++pos_;
      return expr;
    }
    default: break;
  }
  if (skip_op("(")) {
    ExprPtr expr = tuple_expression(true, true);
    expect_op(")");
    return expr;
  }
  if (token.is_op("[")) return list_literal();
  if (token.is_op("{")) return dict_literal();
  fail("expected an expression, found " + describe(token));
}

ExprPtr Parser::name_or_constant() {
  Token token = take();
  const std::string& name = token.text;
  auto constant = [&](Value value) {
    ExprPtr expr = node(ExprType::constant, token.line);
    expr->value = std::move(value);
    return expr;
  };
  if (name == "true" || name == "True") return constant(Value::boolean(true));
  if (name == "false" || name == "False") return constant(Value::boolean(false));
  if (name == "none" || name == "None") return constant(Value::none());
  ExprPtr expr = node(ExprType::name, token.line);
  expr->symbol = read_symbol(name);
  return expr;
}

ExprPtr Parser::string_literal() {
  ExprPtr expr = node(ExprType::constant, current().line);
  std::string text;
  while (current().type == TokenType::string) text += take().text;
  expr->value = constant_string(std::move(text));
  return expr;
}

ExprPtr Parser::list_literal() {
  ExprPtr expr = node(ExprType::list, current().line);
  expect_op("[");
  while (!current().is_op("]")) {
    if (!expr->children.empty()) expect_op(",");
    if (current().is_op("]")) break;
    expr->children.push_back(expression());
  }
  expect_op("]");
  return expr;
}

ExprPtr Parser::dict_literal() {
  ExprPtr expr = node(ExprType::dict, current().line);
  expect_op("{");
  while (!current().is_op("}")) {
    if (!expr->children.empty()) expect_op(",");
    if (current().is_op("}")) break;
    expr->children.push_back(expression());
    expect_op(":");
    expr->children.push_back(expression());
  }
  expect_op("}");
  return expr;
}

// One expression, or a tuple when commas follow. `end_name` is a keyword that ends it, such as "in".
ExprPtr Parser::tuple_expression(bool with_conditional, bool parenthesized, std::string_view end_name) {
  int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    const Token& token = current();
    bool at_end = token.type == TokenType::expression_end || token.type == TokenType::block_end || token.is_op(")") ||
                  (!end_name.empty() && token.is_name(end_name));
    if (at_end) break;
    items.push_back(expression(with_conditional));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parenthesized) fail("expected an expression, found " + describe(current()));
  }
  ExprPtr expr = node(ExprType::tuple, line);
  expr->children = std::move(items);
  return expr;
}

ExprPtr Parser::postfix(ExprPtr base) {
  DepthGuard guard(*this, 0);
  while (true) {
    if (current().is_op(".") || current().is_op("[")) {
      guard.deepen();
      base = subscript(std::move(base));
    } else if (current().is_op("(")) {
      guard.deepen();
      base = call(std::move(base));
    } else {
      return base;
    }
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr base) {
  DepthGuard guard(*this, 0);
  while (true) {
    if (current().is_op("|")) {
      ++pos_;
      guard.deepen();
      base = filter(std::move(base));
    } else if (current().is_name("is")) {
      ++pos_;
      guard.deepen();
      base = test(std::move(base));
    } else if (current().is_op("(")) {
      guard.deepen();
      base = call(std::move(base));
    } else {
      return base;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr base) {
  Token token = take();
  if (token.text == ".") {
    if (current().type == TokenType::integer) {
      ExprPtr expr = node(ExprType::item, token.line);
      ExprPtr index = node(ExprType::constant, token.line);
      index->value = Value::integer(take().integer);
      expr->children.push_back(std::move(base));
      expr->children.push_back(std::move(index));
      return expr;
    }
    ExprPtr expr = node(ExprType::attribute, token.line);
    expr->text = expect_name();
    expr->value = constant_string(expr->text);
    expr->children.push_back(std::move(base));
    return expr;
  }
  ExprPtr expr = node(ExprType::item, token.line);
  expr->children.push_back(std::move(base));
  ExprPtr index = subscript_index();
  if (current().is_op(",")) {
    ExprPtr tuple = node(ExprType::tuple, token.line);
    tuple->children.push_back(std::move(index));
    while (skip_op(",")) {
      if (current().is_op("]")) break;
      tuple->children.push_back(subscript_index());
    }
    index = std::move(tuple);
  }
  expect_op("]");
  expr->children.push_back(std::move(index));
  return expr;
}

ExprPtr Parser::subscript_index() {
  int line = current().line;
  ExprPtr start;
  if (!current().is_op(":")) {
    start = expression();
    if (!current().is_op(":")) return start;
  }
  ExprPtr slice = node(ExprType::slice, line);
  slice->children.push_back(std::move(start));
  for (int part = 0; part < 2; ++part) {
    bool given = skip_op(":") && !current().is_op(":") && !current().is_op("]") && !current().is_op(",");
    slice->children.push_back(given ? expression() : nullptr);
  }
  return slice;
}

ExprPtr Parser::call(ExprPtr base) {
  ExprPtr expr = node(ExprType::call, current().line);
  expr->children.push_back(std::move(base));
  expr->args = arguments();
  return expr;
}

std::vector<CallArgument> Parser::arguments() {
  using Form = CallArgument::Form;
  std::vector<CallArgument> args;
  bool named = false;
  expect_op("(");
  while (!current().is_op(")")) {
    if (!args.empty()) {
      expect_op(",");
      if (current().is_op(")")) break;
    }
    if (skip_op("*")) {
      args.push_back({Form::spread_list, {}, expression()});
    } else if (skip_op("**")) {
      named = true;
      args.push_back({Form::spread_dict, {}, expression()});
    } else if (current().type == TokenType::name && look_ahead().is_op("=")) {
      named = true;
      std::string name = take().text;
      ++pos_;
      args.push_back({Form::named, std::move(name), expression()});
    } else {
      if (named) fail("positional argument follows a named one");
      args.push_back({Form::positional, {}, expression()});
    }
  }
  expect_op(")");
  return args;
}

std::string Parser::dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

ExprPtr Parser::filter(ExprPtr base) {
  ExprPtr expr = node(ExprType::filter, current().line);
  expr->text = dotted_name();
  if (if_depth_ == 0 && !is_known_filter(expr->text)) {
    fail_at(expr->line, fmt::format("unknown filter '{}'{}", expr->text.substr(0, 60), suggest_filter(expr->text)));
  }
  expr->children.push_back(std::move(base));
  if (current().is_op("(")) expr->args = arguments();
  return expr;
}

// "upper|trim" of a filter block: a chain whose innermost base is missing.
ExprPtr Parser::filter_chain() {
  DepthGuard guard(*this, 0);
  guard.deepen();
  ExprPtr chain = filter(nullptr);
  while (skip_op("|")) {
    guard.deepen();
    chain = filter(std::move(chain));
  }
  return chain;
}

ExprPtr Parser::test(ExprPtr base) {
  int line = current().line;
  bool negated = skip_name("not");
  ExprPtr expr = node(ExprType::test, line);
  expr->text = dotted_name();
  if (if_depth_ == 0 && !is_known_test(expr->text)) {
    fail_at(line, fmt::format("unknown test '{}'{}", expr->text.substr(0, 60), suggest_test(expr->text)));
  }
  expr->children.push_back(std::move(base));
  const Token& next = current();
  bool starts_value = next.type == TokenType::name || next.type == TokenType::string || next.type == TokenType::integer ||
                      next.type == TokenType::real || next.is_op("[") || next.is_op("{");
  if (next.is_op("(")) {
    expr->args = arguments();
  } else if (starts_value && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) fail("tests cannot be chained with 'is'");
    ExprPtr argument = postfix(primary());
    expr->args.push_back({CallArgument::Form::positional, {}, std::move(argument)});
  }
  if (!negated) return expr;
  ExprPtr inverse = node(ExprType::logical_not, line);
  inverse->children.push_back(std::move(expr));
  return inverse;
}

ExprPtr Parser::assign_target_item(bool with_namespace) {
  int line = current().line;
  if (skip_op("(")) {
    DepthGuard guard(*this);
    ExprPtr inner = assign_target(with_namespace);
    expect_op(")");
    return inner;
  }
  std::string name = expect_name();
  static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
    fail_at(line, "cannot assign to '" + name + "'");
  }
  if (with_namespace && skip_op(".")) {
    ExprPtr target = node(ExprType::attribute, line);
    target->text = expect_name();
    target->value = constant_string(target->text);
    ExprPtr base = node(ExprType::name, line);
    base->symbol = read_symbol(name);
    target->children.push_back(std::move(base));
    return target;
  }
  ExprPtr target = node(ExprType::name, line);
  target->symbol = ast_.symbols.intern(name);
  return target;
}

ExprPtr Parser::assign_target(bool with_namespace, std::string_view end_name) {
  int line = current().line;
  ExprPtr first = assign_target_item(with_namespace);
  if (!current().is_op(",")) return first;
  ExprPtr tuple = node(ExprType::tuple, line);
  tuple->children.push_back(std::move(first));
  while (skip_op(",")) {
    const Token& token = current();
    if (token.is_op("=") || token.is_op(")") || (!end_name.empty() && token.is_name(end_name))) break;
    tuple->children.push_back(assign_target_item(with_namespace));
  }
  return tuple;
}

}  // namespace turbo::text::jinja
