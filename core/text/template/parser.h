// Builds the Ast of a template. Pure; throws TemplateError on malformed, refused or too deeply nested input.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace turbo::text::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits) : tokens_(std::move(tokens)), limits_(limits) {}
  Ast parse();

 private:
  using Names = std::initializer_list<std::string_view>;
  class DepthGuard;

  // Tokens.
  const Token& current() const { return tokens_[pos_]; }
  const Token& look_ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  Token take() { return pos_ + 1 < tokens_.size() ? tokens_[pos_++] : tokens_[pos_]; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  std::string expect_name();
  void expect_block_end();
  [[noreturn]] void fail(std::string message) const { fail_at(current().line, std::move(message)); }
  [[noreturn]] void fail_at(int line, std::string message) const;

  ExprPtr node(ExprType type, int line);
  std::unique_ptr<Stmt> statement(StmtType type, int line);
  void count_node();
  int read_symbol(const std::string& name);

  // Expressions, loosest binding first.
  ExprPtr expression(bool with_conditional = true);
  ExprPtr conditional();
  ExprPtr logical(ExprType type);
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr string_literal();
  ExprPtr list_literal();
  ExprPtr dict_literal();
  ExprPtr tuple_expression(bool with_conditional, bool parenthesized, std::string_view end_name = {});
  ExprPtr postfix(ExprPtr base);
  ExprPtr filters_and_tests(ExprPtr base);
  ExprPtr subscript(ExprPtr base);
  ExprPtr subscript_index();
  ExprPtr call(ExprPtr base);
  ExprPtr filter(ExprPtr base);
  ExprPtr filter_chain();
  ExprPtr test(ExprPtr base);
  std::vector<CallArgument> arguments();
  std::string dotted_name();
  ExprPtr assign_target(bool with_namespace, std::string_view end_name = {});
  ExprPtr assign_target_item(bool with_namespace);

  // Statements.
  Body body_until(Names ends);
  void output(Body& body);
  std::unique_ptr<Stmt> block_statement();
  std::unique_ptr<Stmt> if_statement(int line);
  std::unique_ptr<Stmt> for_statement(int line);
  std::unique_ptr<Stmt> set_statement(int line);
  std::unique_ptr<Stmt> macro_statement(int line);
  std::unique_ptr<Stmt> call_statement(int line);
  std::unique_ptr<Stmt> filter_statement(int line);
  std::unique_ptr<Stmt> with_statement(int line);
  std::unique_ptr<Stmt> block_scope_statement(int line, std::string_view end);
  void parse_parameters(Signature& signature);
  Body macro_body(Signature& signature, std::string_view end);

  std::vector<Token> tokens_;
  const TemplateLimits& limits_;
  size_t pos_ = 0;
  size_t depth_ = 0;
  size_t loop_depth_ = 0;
  size_t if_depth_ = 0;   ///< an unknown filter inside an if is an error only once it runs
  size_t n_nodes_ = 0;
  std::vector<Signature*> open_macros_;
  Ast ast_;
};

/// Whether names exist, asked while parsing so that a misspelt filter fails at load. Defined with the built-ins.
bool is_known_filter(std::string_view name);
bool is_known_test(std::string_view name);
std::string suggest_filter(std::string_view name);
std::string suggest_test(std::string_view name);

}  // namespace turbo::text::jinja
