// Statements of a template; expressions are in parser.cpp.
#include <algorithm>

#include "text/template/parser.h"

namespace turbo::text::jinja {

Ast Parser::parse() {
  ast_.body = body_until({});
  ast_.read.resize(ast_.symbols.size());
  return std::move(ast_);
}

std::unique_ptr<Stmt> Parser::statement(StmtType type, int line) {
  count_node();
  auto stmt = std::make_unique<Stmt>();
  stmt->type = type;
  stmt->line = line;
  return stmt;
}

void Parser::expect_block_end() {
  if (current().type != TokenType::block_end) fail("expected the end of the block tag, found " + describe(current()));
  ++pos_;
}

// Statements up to a tag named in `ends`, leaving the parser at that name; with no ends, up to the template's end.
Body Parser::body_until(Names ends) {
  if (depth_ >= limits_.max_depth) {
    throw TemplateError{Code::resource_exhausted, fmt::format("nested deeper than {} levels", limits_.max_depth),
                        current().line};
  }
  ++depth_;   // not restored on failure: a failed parse is abandoned whole
  Body body;
  int start_line = current().line;
  while (true) {
    switch (current().type) {
      case TokenType::data: {
        auto stmt = statement(StmtType::output, current().line);
        stmt->text = constant_string(take().text);
        body.push_back(std::move(stmt));
        break;
      }
      case TokenType::expression_begin: output(body); break;
      case TokenType::block_begin: {
        ++pos_;
        const Token& name = current();
        if (name.type == TokenType::name && std::find(ends.begin(), ends.end(), name.text) != ends.end()) {
          --depth_;
          return body;
        }
        body.push_back(block_statement());
        break;
      }
      case TokenType::end:
        if (ends.size() != 0) {
          fail_at(start_line, fmt::format("block is never closed: expected '{}'", *(ends.end() - 1)));
        }
        --depth_;
        return body;
      default: fail("unexpected " + describe(current()));
    }
  }
}

void Parser::output(Body& body) {
  auto stmt = statement(StmtType::output, take().line);
  stmt->exprs.push_back(tuple_expression(true, false));
  if (current().type != TokenType::expression_end) {
    fail("expected the end of the expression, found " + describe(current()));
  }
  ++pos_;
  body.push_back(std::move(stmt));
}

std::unique_ptr<Stmt> Parser::block_statement() {
  if (current().type != TokenType::name) fail("expected a tag name, found " + describe(current()));
  Token tag = take();
  const std::string& name = tag.text;
  int line = tag.line;
  if (name == "if") return if_statement(line);
  if (name == "for") return for_statement(line);
  if (name == "set") return set_statement(line);
  if (name == "macro") return macro_statement(line);
  if (name == "call") return call_statement(line);
  if (name == "filter") return filter_statement(line);
  if (name == "with") return with_statement(line);
  if (name == "generation") return block_scope_statement(line, "endgeneration");
  if (name == "block") {
    expect_name();
    return block_scope_statement(line, "endblock");
  }
  if (name == "break" || name == "continue") {
    if (loop_depth_ == 0) fail_at(line, "'" + name + "' outside a loop");
    expect_block_end();
    return statement(name == "break" ? StmtType::loop_break : StmtType::loop_continue, line);
  }
  for (std::string_view refused : {"include", "import", "extends", "from"}) {
    if (name == refused) fail_at(line, "'" + name + "' is not supported: a chat template stands alone");
  }
  if (name == "autoescape" || name == "do" || name == "trans") fail_at(line, "'" + name + "' is not supported");
  fail_at(line, "unknown or misplaced tag '" + name.substr(0, 60) + "'");
}

std::unique_ptr<Stmt> Parser::if_statement(int line) {
  auto stmt = statement(StmtType::if_chain, line);
  ++if_depth_;
  while (true) {
    stmt->exprs.push_back(tuple_expression(false, false));
    expect_block_end();
    stmt->branches.push_back(body_until({"elif", "else", "endif"}));
    std::string end = take().text;
    if (end == "elif") continue;
    if (end == "else") {
      expect_block_end();
      stmt->branches.push_back(body_until({"endif"}));
      ++pos_;
    }
    --if_depth_;
    expect_block_end();
    return stmt;
  }
}

std::unique_ptr<Stmt> Parser::for_statement(int line) {
  auto stmt = statement(StmtType::for_loop, line);
  stmt->exprs.push_back(assign_target(false, "in"));
  if (!skip_name("in")) fail("expected 'in', found " + describe(current()));
  stmt->exprs.push_back(tuple_expression(false, false, "recursive"));
  stmt->exprs.push_back(skip_name("if") ? expression() : nullptr);
  stmt->flag = skip_name("recursive");
  expect_block_end();
  ++loop_depth_;
  stmt->branches.push_back(body_until({"else", "endfor"}));
  --loop_depth_;
  if (take().text == "else") {
    expect_block_end();
    stmt->branches.push_back(body_until({"endfor"}));
    ++pos_;
  } else {
    stmt->branches.emplace_back();
  }
  expect_block_end();
  return stmt;
}

std::unique_ptr<Stmt> Parser::set_statement(int line) {
  ExprPtr target = assign_target(true);
  if (skip_op("=")) {
    auto stmt = statement(StmtType::set, line);
    stmt->exprs.push_back(std::move(target));
    stmt->exprs.push_back(tuple_expression(true, false));
    expect_block_end();
    return stmt;
  }
  if (target->type == ExprType::tuple) fail("expected '=', found " + describe(current()));
  auto stmt = statement(StmtType::set_block, line);
  stmt->exprs.push_back(std::move(target));
  stmt->exprs.push_back(skip_op("|") ? filter_chain() : nullptr);
  expect_block_end();
  stmt->branches.push_back(body_until({"endset"}));
  ++pos_;
  expect_block_end();
  return stmt;
}

void Parser::parse_parameters(Signature& signature) {
  expect_op("(");
  while (!current().is_op(")")) {
    if (!signature.parameters.empty()) {
      expect_op(",");
      if (current().is_op(")")) break;
    }
    std::string name = expect_name();
    signature.parameters.push_back(ast_.symbols.intern(name));
    signature.parameter_names.push_back(name);
    if (skip_op("=")) {
      signature.defaults.push_back(expression());
    } else if (!signature.defaults.empty()) {
      fail("parameter '" + name + "' without a default follows one that has it");
    }
  }
  expect_op(")");
}

// A macro's body is a loop boundary: break inside it cannot leave a loop around the macro.
Body Parser::macro_body(Signature& signature, std::string_view end) {
  expect_block_end();
  open_macros_.push_back(&signature);
  size_t outer_loops = std::exchange(loop_depth_, 0);
  Body body = body_until({end});
  loop_depth_ = outer_loops;
  open_macros_.pop_back();
  ++pos_;
  if (end == "endmacro" && current().type == TokenType::name) ++pos_;
  expect_block_end();
  return body;
}

std::unique_ptr<Stmt> Parser::macro_statement(int line) {
  auto stmt = statement(StmtType::macro, line);
  stmt->signature = std::make_unique<Signature>();
  stmt->signature->name = expect_name();
  stmt->symbol = ast_.symbols.intern(stmt->signature->name);
  parse_parameters(*stmt->signature);
  stmt->branches.push_back(macro_body(*stmt->signature, "endmacro"));
  return stmt;
}

std::unique_ptr<Stmt> Parser::call_statement(int line) {
  auto stmt = statement(StmtType::call_block, line);
  stmt->signature = std::make_unique<Signature>();
  stmt->signature->name = "caller";
  if (current().is_op("(")) parse_parameters(*stmt->signature);
  stmt->exprs.push_back(expression());
  if (stmt->exprs[0]->type != ExprType::call) fail_at(line, "'call' needs a macro call");
  stmt->branches.push_back(macro_body(*stmt->signature, "endcall"));
  return stmt;
}

std::unique_ptr<Stmt> Parser::filter_statement(int line) {
  auto stmt = statement(StmtType::filter_block, line);
  stmt->exprs.push_back(filter_chain());
  expect_block_end();
  stmt->branches.push_back(body_until({"endfilter"}));
  ++pos_;
  expect_block_end();
  return stmt;
}

std::unique_ptr<Stmt> Parser::with_statement(int line) {
  auto stmt = statement(StmtType::with, line);
  while (current().type != TokenType::block_end) {
    if (!stmt->exprs.empty()) expect_op(",");
    stmt->exprs.push_back(assign_target_item(false));
    expect_op("=");
    stmt->exprs.push_back(expression());
  }
  expect_block_end();
  stmt->branches.push_back(body_until({"endwith"}));
  ++pos_;
  expect_block_end();
  return stmt;
}

std::unique_ptr<Stmt> Parser::block_scope_statement(int line, std::string_view end) {
  auto stmt = statement(StmtType::scope, line);
  expect_block_end();
  stmt->branches.push_back(body_until({end}));
  ++pos_;
  if (end == "endblock" && current().type == TokenType::name) ++pos_;
  expect_block_end();
  return stmt;
}

}  // namespace turbo::text::jinja
