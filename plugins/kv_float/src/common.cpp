#include "common.h"

#include <cmath>

namespace turbo::kv_float {

uint32_t choose_option(const Host& host, const char* codec, const char* key, std::initializer_list<const char*> choices) {
  const std::string text = host.option(key, *choices.begin());
  std::string known;
  uint32_t number = 0;
  for (const char* choice : choices) {
    if (text == choice) return number;
    ++number;
    known += (known.empty() ? "" : ", ") + std::string(choice);
  }
  throw Failure(TURBO_INVALID_ARGUMENT, std::string(codec) + ": option '" + key + "': '" + text.substr(0, 64) + "' is none of " + known,
                "correct it in kv.options");
}

Common::Common() {
  const CpuIsaChoice choice = choose_cpu_isa();
  if (!choice.problem.empty()) throw Failure(TURBO_UNSUPPORTED, choice.problem, "unset TURBO_CPU_ISA");
  isa_ = choice.isa;
}

void Common::probe(const Host&, const turbo_probe_facts&, Probe& answer) {
  const CpuIsaChoice choice = choose_cpu_isa();
  answer.score = choice.problem.empty() ? 100 : 0;
  answer.reason = choice.problem.empty() ? cpu_isa_name(choice.isa) : choice.problem;
}

void Common::check_shape(const char* codec, const turbo_kv_shape& shape) {
  if (shape.head_dim == 0 || shape.head_dim > kMaxHeadDim)
    throw Failure(TURBO_UNSUPPORTED, std::string(codec) + ": head size " + std::to_string(shape.head_dim) + " is not in 1.." +
                                         std::to_string(kMaxHeadDim),
                  "choose a codec of another plugin, or another model");
  if (shape.n_kv_heads == 0 || shape.n_kv_heads > kMaxHeads)
    throw Failure(TURBO_UNSUPPORTED, std::string(codec) + ": " + std::to_string(shape.n_kv_heads) + " KV heads are not in 1.." +
                                         std::to_string(kMaxHeads),
                  "choose a codec of another plugin, or another model");
}

void Common::keep_center(const turbo_kv_shape& shape, const float* center) {
  if (shape.layer >= kMaxLayers) throw Failure(TURBO_INVALID_ARGUMENT, "layer " + std::to_string(shape.layer) + " is out of range");
  check_shape("center", shape);
  const uint64_t n = uint64_t{shape.n_kv_heads} * shape.head_dim;
  for (uint64_t i = 0; i < n; ++i)
    if (!std::isfinite(center[i]))
      throw Failure(TURBO_CORRUPT_INPUT, "center of layer " + std::to_string(shape.layer) + ": element " + std::to_string(i) + " is not finite");
  if (centers_.size() <= shape.layer) centers_.resize(shape.layer + 1);
  centers_[shape.layer].assign(center, center + n);
}

const float* Common::center(const turbo_kv_shape& shape, uint32_t head) const {
  if (shape.side != TURBO_KV_SIDE_K || shape.layer >= centers_.size()) return nullptr;
  const std::vector<float>& all = centers_[shape.layer];
  return all.size() == uint64_t{shape.n_kv_heads} * shape.head_dim ? all.data() + uint64_t{head} * shape.head_dim : nullptr;
}

void Common::make_rotation(const char* codec, const turbo_kv_shape& shape) const {
  if (!Rotation::exists(shape.head_dim))
    throw Failure(TURBO_UNSUPPORTED, std::string(codec) + ": no Hadamard transform of head size " + std::to_string(shape.head_dim),
                  "set kv.options.rotate to none");
  for (const auto& one : rotations_)
    if (one->is_of(shape)) return;
  rotations_.push_back(std::make_unique<Rotation>(isa_, shape.side, shape.head_dim));
}

const Rotation& Common::rotation(const turbo_kv_shape& shape) const {
  for (const auto& one : rotations_)
    if (one->is_of(shape)) return *one;
  return *rotations_.front();
}

bool Common::incoming(const turbo_kv_shape& shape, uint32_t head, const float* src, bool rotate, float* row) const noexcept {
  constexpr float kLargest = 0x1p60f;
  const float* mean = center(shape, head);
  for (uint32_t e = 0; e < shape.head_dim; ++e) {
    if (!std::isfinite(src[e])) return false;
    const float x = mean ? src[e] - mean[e] : src[e];
    row[e] = x > kLargest ? kLargest : x < -kLargest ? -kLargest : x;
  }
  if (rotate) rotation(shape).forward(row);
  return true;
}

void Common::outgoing(const turbo_kv_shape& shape, uint32_t head, bool rotate, float* row) const noexcept {
  if (rotate) rotation(shape).inverse(row);
  if (const float* mean = center(shape, head))
    for (uint32_t e = 0; e < shape.head_dim; ++e) row[e] += mean[e];
}

}  // namespace turbo::kv_float
