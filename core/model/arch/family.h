// Architecture families: each turns a ModelConfig and its weights into the step program of one engine step.
// Adding a family is one file here and one row in family.cpp. Pure functions; called at load and on the engine
// thread when a new row bucket is compiled.
#pragma once

#include <turbo/program.hpp>

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/weights.h"

namespace turbo::model {

struct StepShape {
  uint32_t max_rows = 1;
  uint32_t max_logit_rows = 1;
  turbo_kv_pool* kv = nullptr;
  std::vector<int32_t> tap_layers;  // residual leaving these layers is kept; n_layers = after the final norm
  bool tap_attention = false;       // keep what attention reads: queries and keys of every layer, rotated
};

struct StepProgram {
  std::unique_ptr<ProgramBuilder> builder;
  uint32_t logits = TURBO_NO_BUFFER;  // buffer [logit rows][vocab]
  std::vector<uint32_t> taps;         // buffer of each requested tap, [rows][n_embd]
  std::vector<uint32_t> query_taps;   // with tap_attention, by layer: [rows][n_heads][head_dim_k]
  std::vector<uint32_t> key_taps;     // same: [rows][n_kv_heads][head_dim_k]
};

using BuildStep = StepProgram (*)(const ModelConfig&, const WeightSet&, const StepShape&);

/// The builder of a family, or an error that lists the families there are.
Result<BuildStep> find_family(std::string_view architecture);

StepProgram build_qwen3(const ModelConfig&, const WeightSet&, const StepShape&);
StepProgram build_qwen2(const ModelConfig&, const WeightSet&, const StepShape&);
StepProgram build_llama(const ModelConfig&, const WeightSet&, const StepShape&);

}  // namespace turbo::model
