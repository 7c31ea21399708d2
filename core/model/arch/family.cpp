#include "model/arch/family.h"

#include <array>

namespace turbo::model {
namespace {

struct Family {
  std::string_view architecture;
  BuildStep build;
};

constexpr std::array<Family, 3> families{{{"qwen3", build_qwen3}, {"qwen2", build_qwen2}, {"llama", build_llama}}};

}  // namespace

Result<BuildStep> find_family(std::string_view architecture) {
  std::string known;
  for (const Family& family : families) {
    if (family.architecture == architecture) return family.build;
    known += known.empty() ? "" : ", ";
    known += family.architecture;
  }
  return error(Code::unsupported, "architecture '{}' is not supported", architecture).with_hint("supported: " + known);
}

}  // namespace turbo::model
