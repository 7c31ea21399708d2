#include "worklist.h"

#include <turbo/kernel/random.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace turbo::sample_standard {

using device::kNone;

namespace {

bool is_top_k(const SampleRow& row) { return row.top_k > 0 && static_cast<uint64_t>(row.top_k) < row.logits.size(); }

// How far down the order a draw looks: up to its share of the mass, or to the first weight below min_p.
void bound(device::View& view, const SampleRow& row) {
  if (is_top_k(row)) {
    view.least = std::max(view.least, static_cast<uint32_t>(row.top_k));
    return;
  }
  const bool cut = row.top_p < 1 || row.min_p > 0;
  view.share = cut ? row.top_p : static_cast<float>(turbo_uniform(row.seed, row.position));
  if (row.min_p <= 0) return;
  const double units = -std::log(static_cast<double>(row.min_p)) * std::max(1.0, static_cast<double>(row.temperature));
  view.last_bin = static_cast<uint32_t>(std::min(units * device::kBinsPerUnit * 1.0001 + 2, static_cast<double>(device::kBins)));
}

}  // namespace

bool is_edited(const SampleRow& row) { return !row.mask.empty() || !row.bias_ids.empty() || penalised(row); }
bool is_plain(const SampleRow& row, bool logprob, bool top) { return row.temperature == 0 && !is_edited(row) && !logprob && !top; }

bool wants_whole(const SampleRow& row) {
  if (row.temperature == 0) return false;
  if (is_top_k(row)) return static_cast<uint32_t>(row.top_k) > device::kListCapacity;
  return row.typical_p < 1 && row.top_p >= 1 && row.min_p <= 0;
}

void Worklist::clear() {
  works.clear();
  views.clear();
  edits.clear();
  biases.clear();
  masks.clear();
  n_edited = n_lists = 0;
}

uint32_t Worklist::add_view(uint32_t work, uint32_t flags, float temperature, bool list, uint32_t least) {
  views.push_back({work, flags, temperature, list ? n_lists++ : kNone, std::max(least, 1u), device::kBins, 0});
  return static_cast<uint32_t>(views.size()) - 1;
}

void Worklist::add(Plan& plan, const SampleRow& row, bool logprob, uint32_t n_top) {
  plan.work = static_cast<uint32_t>(works.size());
  device::Work work{plan.row, kNone, static_cast<uint32_t>(edits.size()), 0, kNone, row.repetition_penalty, row.frequency_penalty, row.presence_penalty};
  const bool edited = is_edited(row);
  if (edited) {
    work.edited = n_edited++;
    add_edits(row);
    work.n_edits = static_cast<uint32_t>(edits.size()) - work.first_edit;
    if (!row.mask.empty()) {
      work.first_word = static_cast<uint32_t>(masks.size());
      masks.insert(masks.end(), row.mask.begin(), row.mask.end());
    }
  }
  works.push_back(work);
  const bool draws = row.temperature != 0, top_k = is_top_k(row);
  if (draws) {
    const uint32_t flags = (edited ? device::kViewEdited : 0) | (top_k ? 0 : device::kViewMass);
    plan.draw_view = add_view(plan.work, flags, row.temperature, true, edited ? 1 : n_top);
    bound(views.back(), row);
  }
  if (!logprob && n_top == 0) return;
  // The draw's view serves when it is of the model's own row, with its mass at temperature 1.
  if (draws && !edited && row.temperature == 1 && !top_k) plan.model_view = plan.draw_view;
  else plan.model_view = add_view(plan.work, device::kViewMass, 1, n_top > 0 && (edited || !draws), n_top);
}

void Worklist::add_edits(const SampleRow& row) {
  const uint64_t n = row.logits.size();
  if (seen_.size() < n) {
    seen_.resize(n);
    place_.resize(n, kNone);
  }
  touched_.clear();
  const auto touch = [&](int32_t id) {
    if (std::exchange(place_[static_cast<size_t>(id)], 0u) == kNone) touched_.push_back(id);
  };
  for (const int32_t id : row.bias_ids) touch(id);
  if (penalised(row)) {
    const auto see = [&](std::span<const int32_t> tokens, uint32_t add) {
      for (const int32_t id : tokens) {
        if (id < 0 || static_cast<uint64_t>(id) >= n) continue;
        touch(id);
        uint32_t& seen = seen_[static_cast<size_t>(id)];
        seen = (seen + add) | kSeen;
      }
    };
    see(row.prompt, 0);
    see(row.output, 1);
    see(row.path, 1);
  }
  std::sort(touched_.begin(), touched_.end());
  const size_t first = edits.size();
  for (const int32_t id : touched_) {
    place_[static_cast<size_t>(id)] = static_cast<uint32_t>(edits.size());
    edits.push_back({static_cast<uint32_t>(id), 0, 0, std::exchange(seen_[static_cast<size_t>(id)], 0u)});
  }
  // Biases of a token keep their order.
  for (const int32_t id : row.bias_ids) ++edits[place_[static_cast<size_t>(id)]].n_bias;
  auto begin = static_cast<uint32_t>(biases.size());
  for (size_t e = first; e < edits.size(); ++e) {
    edits[e].first_bias = begin;
    begin += std::exchange(edits[e].n_bias, 0u);
  }
  biases.resize(begin);
  for (size_t i = 0; i < row.bias_ids.size(); ++i) {
    device::Edit& edit = edits[place_[static_cast<size_t>(row.bias_ids[i])]];
    biases[edit.first_bias + edit.n_bias++] = row.bias_values[i];
  }
  for (const int32_t id : touched_) place_[static_cast<size_t>(id)] = kNone;
}

}  // namespace turbo::sample_standard
