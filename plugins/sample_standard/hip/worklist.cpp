#include "worklist.h"

#include <algorithm>
#include <utility>

namespace turbo::sample_standard {

using device::kNone;

bool is_edited(const SampleRow& row) { return !row.mask.empty() || !row.bias_ids.empty() || penalised(row); }
bool is_plain(const SampleRow& row, bool logprob, bool top) { return row.temperature == 0 && !is_edited(row) && !logprob && !top; }

bool wants_whole(const SampleRow& row) {
  if (row.temperature == 0) return false;
  const bool top_k = row.top_k > 0 && static_cast<uint64_t>(row.top_k) < row.logits.size();
  if (top_k) return static_cast<uint32_t>(row.top_k) > device::kListCapacity;
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

uint32_t Worklist::add_view(uint32_t work, uint32_t flags, float temperature, bool list) {
  views.push_back({work, flags, temperature, list ? n_lists++ : kNone});
  return static_cast<uint32_t>(views.size()) - 1;
}

void Worklist::add(Plan& plan, const SampleRow& row, bool logprob, bool top) {
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
  const bool draws = row.temperature != 0;
  const bool top_k = row.top_k > 0 && static_cast<uint64_t>(row.top_k) < row.logits.size();
  if (draws) {
    const uint32_t flags = (edited ? device::kViewEdited : 0) | (top_k ? 0 : device::kViewMass);
    plan.draw_view = add_view(plan.work, flags, row.temperature, true);
  }
  if (!logprob && !top) return;
  // The draw's view serves when it is of the model's own row, with its mass at temperature 1.
  if (draws && !edited && row.temperature == 1 && !top_k) plan.model_view = plan.draw_view;
  else plan.model_view = add_view(plan.work, device::kViewMass, 1, top && (edited || !draws));
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
