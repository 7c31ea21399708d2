// The guard of the C++ stack while a template runs.
#pragma once

#include "text/template/interpreter.h"

namespace turbo::text::jinja {

/// One level of evaluation; parse-time limits bound each expression and each macro call, this bounds their product.
class Interpreter::Nesting {
 public:
  explicit Nesting(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.nesting_ > kLevelsPerDepth * interpreter_.heap_.limits().max_depth) {
      --interpreter_.nesting_;
      interpreter_.heap_.exhausted("evaluation nested too deeply");
    }
  }
  ~Nesting() { --interpreter_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  static constexpr size_t kLevelsPerDepth = 10;
  Interpreter& interpreter_;
};

}  // namespace turbo::text::jinja
