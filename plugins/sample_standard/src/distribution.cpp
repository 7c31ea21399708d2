#include "distribution.h"

#include <algorithm>
#include <cmath>

namespace turbo::sample_standard {
namespace {

constexpr float kLargestPenalty = 1e6f;  // keeps every sum of penalties finite

}  // namespace

bool in_range(const SampleRow& row) {
  const auto within = [](float x, float low, float high) { return x >= low && x <= high; };  // false for NaN
  if (!within(row.temperature, 0, kLargestPenalty) || !within(row.top_p, 0, 1) || !within(row.min_p, 0, 1) ||
      !within(row.typical_p, 0, 1) || !(row.repetition_penalty > 0) || row.repetition_penalty > kLargestPenalty ||
      !within(row.presence_penalty, -kLargestPenalty, kLargestPenalty) ||
      !within(row.frequency_penalty, -kLargestPenalty, kLargestPenalty))
    return false;
  for (const int32_t id : row.bias_ids)
    if (id < 0 || static_cast<uint64_t>(id) >= row.logits.size()) return false;
  for (const float bias : row.bias_values)
    if (!within(bias, -kLargestPenalty, kLargestPenalty)) return false;
  return true;
}

bool penalised(const SampleRow& row) {
  return row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
}

double ln(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (int k = 27; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return exponent * 0.69314718055994530942 + 2 * s * sum;
}

turbo_status Distribution::prepare(const SampleRow& row) {
  n_ = row.logits.size();
  found_ = nullptr;
  undecided_ = false;
  model_mass_ = 0;
  if (!in_range(row)) return TURBO_INVALID_ARGUMENT;
  if (!model_.reset(row.logits.data(), n_)) return TURBO_CORRUPT_INPUT;
  ranking_ = &model_;
  if (!row.mask.empty() || !row.bias_ids.empty() || penalised(row)) {
    adjust(row);
    adjusted_.reset(values_.data(), n_);
    ranking_ = &adjusted_;
  }
  return choose(row);
}

turbo_status Distribution::prepare(const SampleRow& row, const Found& found) {
  n_ = row.logits.size();
  found_ = &found;
  undecided_ = false;
  model_mass_ = found.model_mass;
  if (!in_range(row)) return TURBO_INVALID_ARGUMENT;
  if (found.nan) return TURBO_CORRUPT_INPUT;
  model_.reset(found.model);
  ranking_ = &model_;
  if (found.edited) {
    adjusted_.reset(*found.edited);
    ranking_ = &adjusted_;
  }
  return choose(row);
}

turbo_status Distribution::choose(const SampleRow& row) {
  kept_.clear();
  greedy_ = -1;
  lazy_ = false;
  if (ranking_->max() == -kInfinity) return TURBO_NOT_FOUND;
  temperature_ = row.temperature;
  if (temperature_ == 0) {
    greedy_ = ranking_->argmax();
    return TURBO_OK;
  }
  filter(row);
  return TURBO_OK;
}

void Distribution::adjust(const SampleRow& row) {
  values_.assign(row.logits.begin(), row.logits.end());
  for (uint64_t word = 0; word < row.mask.size(); ++word) {
    const uint32_t bits = row.mask[word];
    if (bits == 0xffffffffu) continue;
    const uint64_t end = std::min(n_, word * 32 + 32);
    for (uint64_t token = word * 32; token < end; ++token)
      if (!((bits >> (token % 32)) & 1u)) values_[token] = -kInfinity;
  }
  for (size_t i = 0; i < row.bias_ids.size(); ++i) {
    float& value = values_[static_cast<size_t>(row.bias_ids[i])];
    value = row.bias_values[i] <= kBan ? -kInfinity : value + row.bias_values[i];
  }
  if (penalised(row)) apply_penalties(row);
}

void Distribution::apply_penalties(const SampleRow& row) {
  counts_.resize(std::max<size_t>(counts_.size(), n_));
  touched_.clear();
  const auto see = [&](std::span<const int32_t> tokens, uint32_t add) {
    for (const int32_t id : tokens) {
      if (id < 0 || static_cast<uint64_t>(id) >= n_) continue;
      uint32_t& count = counts_[static_cast<size_t>(id)];
      if (count == 0) touched_.push_back(id);
      count = (count + add) | kSeen;
    }
  };
  see(row.prompt, 0);
  see(row.output, 1);
  see(row.path, 1);
  for (const int32_t id : touched_) {
    float& value = values_[static_cast<size_t>(id)];
    const uint32_t count = std::exchange(counts_[static_cast<size_t>(id)], 0u) & ~kSeen;
    value = value > 0 ? value / row.repetition_penalty : value * row.repetition_penalty;
    if (count > 0) value = (value - row.frequency_penalty * static_cast<float>(count)) - row.presence_penalty;
  }
}

float Distribution::weight_at(uint64_t i, float least) {
  const auto candidate = ranking_->at(i);
  if (candidate) return weight(candidate->logit, ranking_->max(), temperature_);
  undecided_ |= ranking_->is_partial() && found_->tail_weight != 0 && !(found_->tail_weight < least);
  return 0;
}

// top-k, top-p and min-p each keep a prefix of the descending order, so one walk finds the shortest.
void Distribution::filter(const SampleRow& row) {
  double total = 0;
  if (row.top_k > 0 && static_cast<uint64_t>(row.top_k) < n_) {
    ranking_->cut(static_cast<uint64_t>(row.top_k));
    undecided_ |= ranking_->is_partial();
    uint64_t i = 0;
    for (float w; (w = weight_at(i)) > 0; ++i) total += static_cast<double>(w);
  } else {
    total = found_ ? found_->mass : weight_sum(ranking_->logits(), n_, ranking_->max(), temperature_);
    if (ranking_ == &model_ && temperature_ == 1) model_mass_ = total;
  }
  mass_ = total;
  lazy_ = row.top_p >= 1 && row.min_p <= 0 && row.typical_p >= 1;
  if (lazy_) return;
  const double least = row.top_p < 1 ? static_cast<double>(row.top_p) * total : kInfinity;
  double preceding = 0;
  for (uint64_t i = 0;; ++i) {
    if (i > 0 && preceding >= least) break;
    const float w = weight_at(i, i > 0 ? row.min_p : 0);
    if (!(w > 0) || (i > 0 && w < row.min_p)) break;  // the top weight is exactly 1
    kept_.push_back({ranking_->at(i)->id, w});
    preceding += static_cast<double>(w);
  }
  mass_ = preceding;
  if (row.typical_p < 1) keep_typical(row.typical_p);
}

// Locally typical sampling (arXiv 2202.00666): the tokens whose surprise is nearest the entropy.
void Distribution::keep_typical(float typical_p) {
  const double log_mass = ln(mass_);
  double entropy = 0;
  for (const Kept& k : kept_) {
    const double w = static_cast<double>(k.weight);
    entropy += w / mass_ * (log_mass - ln(w));
  }
  deviations_.clear();
  for (uint32_t i = 0; i < kept_.size(); ++i)
    deviations_.emplace_back(std::fabs(log_mass - ln(static_cast<double>(kept_[i].weight)) - entropy), i);
  std::sort(deviations_.begin(), deviations_.end());
  double preceding = 0;
  size_t n = 0;
  while (n < deviations_.size() && (n == 0 || preceding < static_cast<double>(typical_p) * mass_))
    preceding += static_cast<double>(kept_[deviations_[n++].second].weight);
  deviations_.resize(n);
  std::sort(deviations_.begin(), deviations_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  mass_ = 0;
  for (size_t i = 0; i < n; ++i) {
    kept_[i] = kept_[deviations_[i].second];
    mass_ += static_cast<double>(kept_[i].weight);
  }
  kept_.resize(n);
}

const Distribution::Kept* Distribution::kept_at(uint64_t i) {
  while (lazy_ && i >= kept_.size()) {
    const float w = weight_at(kept_.size());
    if (!(w > 0)) lazy_ = false;
    else kept_.push_back({ranking_->at(kept_.size())->id, w});
  }
  return i < kept_.size() ? &kept_[i] : nullptr;
}

int32_t Distribution::draw(double u) {
  if (greedy_ >= 0) return greedy_;
  const double target = u * mass_;
  double cumulative = 0;
  int32_t last = -1;
  for (uint64_t i = 0; const Kept* k = kept_at(i); ++i) {
    last = k->id;
    cumulative += static_cast<double>(k->weight);
    if (cumulative > target) break;
  }
  return last;  // rounding may leave the sum below target: the last token with mass
}

std::vector<Distribution::Entry> Distribution::table() {
  if (greedy_ >= 0) return {{greedy_, 1.0}};
  std::vector<Entry> entries;
  for (uint64_t i = 0; const Kept* k = kept_at(i); ++i) entries.push_back({k->id, static_cast<double>(k->weight) / mass_});
  return entries;
}

double Distribution::model_mass() {
  if (model_mass_ == 0) model_mass_ = weight_sum(model_.logits(), n_, model_.max(), 1);
  return model_mass_;
}

float Distribution::model_logit(int32_t id) const {
  if (!found_) return model_.logits()[id];
  if (greedy_ >= 0) return found_->edited ? found_->greedy_logit : model_.max();
  const std::span<const uint64_t> keys = found_->edited ? found_->edited->keys : found_->model.keys;
  size_t at = 0;
  while (static_cast<uint32_t>(keys[at]) != static_cast<uint32_t>(id)) ++at;  // it was drawn from there
  return found_->edited ? found_->model_logits[at] : candidate_of(keys[at]).logit;
}

float Distribution::logprob(int32_t id) { return logprob_of(model_logit(id)); }

float Distribution::logprob_of(float x) {
  const float max = model_.max();
  if (max == kInfinity) return x == kInfinity ? static_cast<float>(-ln(model_mass())) : -kInfinity;
  return static_cast<float>(static_cast<double>(x) - static_cast<double>(max) - ln(model_mass()));
}

void Distribution::top(std::span<int32_t> ids, std::span<float> logprobs) {
  // The draw may have cut the model's own ranking: start over.
  if (ranking_ == &model_) {
    if (found_) model_.reset(found_->model);
    else model_.reset(model_.logits(), n_);
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto candidate = model_.at(i);
    if (!candidate) {
      undecided_ |= model_.is_partial();
      return;
    }
    ids[i] = candidate->id;
    logprobs[i] = logprob_of(candidate->logit);
  }
}

}  // namespace turbo::sample_standard
