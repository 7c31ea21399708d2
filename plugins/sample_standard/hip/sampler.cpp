#include "sampler.h"

#include "../src/answer.h"

#include <algorithm>
#include <bit>
#include <cstring>

extern "C" const turbo_code_object turbo_kernels_sample[];
extern "C" const uint32_t turbo_n_kernels_sample;

namespace turbo::sample_standard {
namespace {

using Rows = Sampler<DeviceSampler>;  // for row_of
enum Kernel : uint32_t { argmax_rows, survey_rows, weigh_views, list_views };
constexpr uint32_t kMostWorks = 64, kMostWhole = 16, kFirstWorks = 8, kFirstRows = 256;

constexpr uint64_t padded(uint32_t vocab) { return (uint64_t{vocab} + 3) / 4 * 4; }
constexpr uint64_t segments(uint32_t vocab) { return (uint64_t{vocab} + device::kSegment - 1) / device::kSegment; }

// A thread for every four elements of a short row; results do not depend on it.
constexpr uint32_t threads_for(uint32_t vocab) { return std::clamp((std::min(vocab, device::kSegment) / 4 + 31) / 32 * 32, 32u, device::kThreads); }

/// Masks of all works, and some penalties.
constexpr uint64_t block_room(uint32_t vocab, uint32_t works) { return std::bit_ceil(works * ((uint64_t{vocab} + 31) / 32 * 4) + (1 << 15)); }

float value_of(uint64_t key) { return candidate_of(~key).logit; }
int32_t index_of(uint64_t key) { return value_of(key) == -kInfinity ? -1 : candidate_of(~key).id; }

}  // namespace

DeviceSampler::DeviceSampler(const turbo_device* device, uint32_t vocab)
    : scratch_(device, TURBO_MEMORY_DEVICE), memory_(device, TURBO_MEMORY_DEVICE), block_(device, TURBO_MEMORY_DEVICE),
      host_block_(device, TURBO_MEMORY_PINNED), host_results_(device, TURBO_MEMORY_PINNED), host_rows_(device, TURBO_MEMORY_PINNED),
      host_plain_(device, TURBO_MEMORY_PINNED) {
  kernels_.attach(device, {{turbo_kernels_sample, turbo_n_kernels_sample, {"argmax_rows", "survey_rows", "weigh_views", "list_views"}}});
  if (vocab > 0 && !resize(vocab, kFirstRows, kFirstWorks, 1)) throw Failure(TURBO_RESOURCE_EXHAUSTED, "device sampler: no memory for its buffers");
}

bool DeviceSampler::resize(uint32_t vocab, uint32_t rows, uint32_t works, uint32_t whole) {
  using namespace device;
  const uint64_t n_views = 2ull * works;
  Layout scratch, memory, results;
  scratch.add<gpu::ArgmaxRow>(std::max<uint64_t>(rows, 2ull * works));
  found_ = memory.add<WorkFound>(works);
  cleared_ = memory.add<uint32_t>(n_views * (kBins + 1));
  edited_ = memory.add<float>(works * padded(vocab));
  results.add<WorkFound>(works);
  results.add<ViewFound>(n_views);
  results.add<double>(n_views * segments(vocab));
  results.add<uint64_t>(n_views * kListCapacity);
  results.add<float>(n_views * kListCapacity);
  // A part that has grown is of use though another could not; what counts is what all of them hold.
  if (!scratch_.grow(scratch.bytes()) || !memory_.grow(memory.bytes()) || !host_results_.grow(results.bytes()) ||
      !block_.grow(block_room(vocab, works)) || !host_block_.grow(block_room(vocab, works)) || !host_rows_.grow(whole * padded(vocab) * sizeof(float)) || !host_plain_.grow(rows * sizeof(GreedyFound)))
    return false;
  vocab_ = vocab;
  n_rows_ = rows;
  n_works_ = works;
  n_whole_ = whole;
  dirty_ = true;
  return true;
}

// Larger calls than ever before make the buffers grow; where there is no memory for that they are served in rounds.
void DeviceSampler::make_room(const turbo_sample& args) {
  uint32_t works = 0, whole = 0;
  for (const Plan& plan : plans_) {
    works += plan.way == Plan::Way::found;
    whole += plan.way == Plan::Way::whole;
  }
  const auto grown = [](uint32_t now, uint32_t needed, uint32_t first, uint32_t most) {
    return std::max(now, std::min(std::bit_ceil(std::max(needed, first)), most));
  };
  const uint32_t rows = grown(n_rows_, args.n_rows, kFirstRows, 1u << 16);
  const bool fits = args.vocab <= vocab_;
  if (fits && rows == n_rows_ && std::min(works, kMostWorks) <= n_works_ && std::min(whole, kMostWhole) <= n_whole_) return;
  const uint32_t vocab = std::max(args.vocab, vocab_);
  if (resize(vocab, rows, grown(n_works_, works, kFirstWorks, kMostWorks), grown(n_whole_, whole, 1, kMostWhole))) return;
  if (resize(vocab, std::max(n_rows_, 1u), std::max(n_works_, 1u), std::max(n_whole_, 1u))) return;
  throw Failure(TURBO_RESOURCE_EXHAUSTED, "device sampler: no memory for a row of " + std::to_string(args.vocab) + " logits", "lower the share of memory that the KV cache takes");
}

// Counters and keys that a launch left half-way would spoil the next one.
void DeviceSampler::clean_scratch() {
  if (dirty_) kernels_.fill(kernels_.device()->stream, scratch_.at<void>(), 0, scratch_.bytes());
  dirty_ = true;  // until the launches are known to have ended
}

SampleAnswer DeviceSampler::answer_of(const turbo_sample& args, uint32_t row) const {
  SampleAnswer answer;
  if (args.logprobs) (answer.logprob = &args.logprobs[row])[0] = -INFINITY;
  if (args.n_top) {
    answer.top_ids = {args.top_ids + uint64_t{row} * args.n_top, args.n_top};
    answer.top_logprobs = {args.top_logprobs + uint64_t{row} * args.n_top, args.n_top};
    std::fill(answer.top_ids.begin(), answer.top_ids.end(), -1);
    std::fill(answer.top_logprobs.begin(), answer.top_logprobs.end(), -INFINITY);
  }
  return answer;
}

void DeviceSampler::finish(const turbo_sample& args, uint32_t row, const SampleAnswer& answer) const {
  args.row_status[row] = answer.status;
  args.ids[row] = answer.status == TURBO_OK ? answer.id : -1;
}

void DeviceSampler::plan(const turbo_sample& args) {
  plans_.clear();
  for (uint32_t r = 0; r < args.n_rows; ++r) {
    Plan plan;
    plan.row = r;
    SampleAnswer answer = answer_of(args, r);
    const turbo_status status = guarded(nullptr, [&] {
      const SampleRow row = Rows::row_of(args, r);
      if (!in_range(row)) throw Failure(TURBO_INVALID_ARGUMENT, "parameters out of range");
      if (row.logits.empty()) throw Failure(TURBO_NOT_FOUND, "no token");
      plan.plain = is_plain(row, args.logprobs, args.n_top > 0);
      plan.way = wants_whole(row) ? Plan::Way::whole : Plan::Way::found;
    });
    answer.status = status;
    if (status != TURBO_OK) finish(args, r, answer);
    plans_.push_back(plan);
  }
}

void DeviceSampler::sample(const turbo_sample& args) {
  plan(args);
  if (std::none_of(plans_.begin(), plans_.end(), [](const Plan& p) { return p.way != Plan::Way::done; })) return;
  make_room(args);
  const bool all_plain = std::all_of(plans_.begin(), plans_.end(), [](const Plan& p) { return p.plain || p.way == Plan::Way::done; });
  if (all_plain) {
    for (uint32_t first = 0; first < args.n_rows; first += n_rows_) run_plain(args, first, std::min(n_rows_, args.n_rows - first));
    return;
  }
  size_t begin = 0;
  while (begin < plans_.size()) {
    round_.begin = begin;
    round_.whole.clear();
    list_.clear();
    for (; begin < plans_.size(); ++begin) {
      Plan& plan = plans_[begin];
      if (plan.way == Plan::Way::found) {
        if (list_.works.size() == n_works_) break;
        list_.add(plan, Rows::row_of(args, plan.row), args.logprobs != nullptr, args.n_top);
      } else if (plan.way == Plan::Way::whole) {
        if (round_.whole.size() == n_whole_) break;
        round_.whole.push_back(plan.row);
      }
    }
    round_.end = begin;
    run_round(args, round_);
  }
}

void DeviceSampler::run_plain(const turbo_sample& args, uint32_t first, uint32_t n) {
  clean_scratch();
  const uint32_t splits = gpu::argmax_splits(args.vocab, n);
  const auto* const found = host_plain_.at<device::GreedyFound>();
  const device::GreedyArgs kernel{gpu::logit_rows(args.logits + first * args.logit_stride, args.logit_stride, args.vocab, n, splits),
                                  scratch_.at<gpu::ArgmaxRow>(), host_plain_.at<device::GreedyFound>()};
  turbo_stream* const stream = kernels_.device()->stream;
  kernels_.launch(stream, argmax_rows, uint64_t{n} * splits, threads_for(args.vocab), kernel);
  kernels_.sync(stream);
  dirty_ = false;
  for (uint32_t i = 0; i < n; ++i) {
    if (plans_[first + i].way == Plan::Way::done) continue;
    SampleAnswer answer;
    answer.id = index_of(found[i].key);
    answer.status = found[i].nan ? TURBO_CORRUPT_INPUT : answer.id < 0 ? TURBO_NOT_FOUND : TURBO_OK;
    finish(args, first + i, answer);
    ++counts_.plain;
  }
}

void DeviceSampler::enqueue_works(const turbo_sample& args) {
  using namespace device;
  Layout block, results;
  const bool few = list_.works.size() <= kFewWorks && list_.views.size() <= kFewViews;
  if (!few) {
    works_ = block.add<Work>(list_.works.size());
    views_ = block.add<View>(list_.views.size());
  }
  edits_ = block.add<Edit>(list_.edits.size());
  biases_ = block.add<float>(list_.biases.size());
  masks_ = block.add<uint32_t>(list_.masks.size());
  work_found_ = results.add<WorkFound>(list_.works.size());
  view_found_ = results.add<ViewFound>(list_.views.size());
  sums_ = results.add<double>(list_.views.size() * segments(args.vocab));
  keys_ = results.add<uint64_t>(uint64_t{list_.n_lists} * kListCapacity);
  model_logits_ = results.add<float>(uint64_t{list_.n_lists} * kListCapacity);
  const uint64_t room = std::bit_ceil(std::max<uint64_t>(block.bytes(), 1));
  if (!block_.grow(room) || !host_block_.grow(room)) throw Failure(TURBO_RESOURCE_EXHAUSTED, "device sampler: no memory for masks and penalties");
  const auto put = [&](uint64_t at, const auto& from) {
    if (!from.empty()) std::memcpy(host_block_.at<char>(at), from.data(), from.size() * sizeof from[0]);
  };
  Tasks tasks{};
  if (few) {
    std::copy(list_.works.begin(), list_.works.end(), tasks.few_works);
    std::copy(list_.views.begin(), list_.views.end(), tasks.few_views);
  } else {
    put(works_, list_.works);
    put(views_, list_.views);
    tasks.works = block_.at<Work>(works_);
    tasks.views = block_.at<View>(views_);
  }
  put(edits_, list_.edits);
  put(biases_, list_.biases);
  put(masks_, list_.masks);

  turbo_stream* const stream = kernels_.device()->stream;
  kernels_.copy(stream, block_.at<void>(), host_block_.at<void>(), block.bytes(), TURBO_COPY_TO_DEVICE);
  const auto n_works = static_cast<uint32_t>(list_.works.size());
  const uint64_t n_views = list_.views.size(), blocks = segments(args.vocab);
  const uint32_t splits = gpu::argmax_splits(args.vocab, n_works);
  const SurveyArgs survey{gpu::logit_rows(args.logits, args.logit_stride, args.vocab, n_works, splits),
                          tasks, block_.at<Edit>(edits_), block_.at<float>(biases_), block_.at<uint32_t>(masks_),
                          memory_.at<float>(edited_), padded(args.vocab), scratch_.at<gpu::ArgmaxRow>(),
                          memory_.at<WorkFound>(found_), host_results_.at<WorkFound>(work_found_), memory_.at<uint32_t>(cleared_), n_views * (kBins + 1)};
  kernels_.launch(stream, survey_rows, n_works * uint64_t{splits}, threads_for(args.vocab), survey);
  if (n_views == 0) return;
  uint32_t* const bins = memory_.at<uint32_t>(cleared_);
  const ViewArgs views{args.logits, args.logit_stride, args.vocab, static_cast<uint32_t>(blocks), tasks, memory_.at<WorkFound>(found_),
                       memory_.at<float>(edited_), padded(args.vocab), bins, bins + n_views * kBins,
                       host_results_.at<ViewFound>(view_found_), host_results_.at<double>(sums_), blocks,
                       host_results_.at<uint64_t>(keys_), host_results_.at<float>(model_logits_)};
  kernels_.launch(stream, weigh_views, n_views * blocks, kThreads, views);
  if (list_.n_lists > 0) kernels_.launch(stream, list_views, n_views * blocks, kThreads, views);
}

// Segments in rising order, as the CPU tier adds them.
double DeviceSampler::mass_of(uint32_t view, uint32_t vocab) const {
  const double* const sums = host_results_.at<double>(sums_) + view * segments(vocab);
  double mass = 0;
  for (uint64_t i = 0; i < segments(vocab); ++i) mass += sums[i];
  return mass;
}

void DeviceSampler::copy_rows(const turbo_sample& args, const uint32_t* rows, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i)
    kernels_.copy(kernels_.device()->stream, host_rows_.at<float>() + i * padded(args.vocab), args.logits + rows[i] * args.logit_stride,
                 args.vocab * sizeof(float), TURBO_COPY_TO_HOST);
}

void DeviceSampler::answer_copied(const turbo_sample& args, const uint32_t* rows, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    SampleAnswer answer = answer_of(args, rows[i]);
    const turbo_status thrown = guarded(nullptr, [&] {
      SampleRow row = Rows::row_of(args, rows[i]);
      row.logits = {host_rows_.at<float>() + i * padded(args.vocab), args.vocab};
      answer_row(distribution_, row, answer);
    });
    if (thrown != TURBO_OK) answer.status = thrown;
    finish(args, rows[i], answer);
  }
}

bool DeviceSampler::answer_found(const turbo_sample& args, const Plan& plan) {
  using namespace device;
  const WorkFound& work = host_results_.at<WorkFound>(work_found_)[plan.work];
  const bool edited = list_.works[plan.work].edited != kNone, has_views = plan.draw_view != kNone || plan.model_view != kNone;
  Head head, edited_head;
  head.max = value_of(work.key);
  head.argmax = index_of(work.key);
  if (edited) {
    edited_head.max = value_of(work.edited_key);
    edited_head.argmax = index_of(work.edited_key);
  }
  // Infinite logits share their mass: rare, and left to the row's own code.
  if (has_views && !work.nan && (head.max == kInfinity || edited_head.max == kInfinity)) return false;
  const auto fill = [&](Head& to, uint32_t index) {
    const View& view = list_.views[index];
    const ViewFound& found = host_results_.at<ViewFound>(view_found_)[index];
    if (view.list == kNone) return;
    to.keys = {host_results_.at<uint64_t>(keys_) + uint64_t{view.list} * kListCapacity, std::min(found.n, kListCapacity)};
    to.complete = found.end_bin >= kBins;
  };
  Found found;
  found.nan = work.nan != 0;
  found.greedy_logit = work.model_logit;
  if (plan.model_view != kNone) {
    found.model_mass = mass_of(plan.model_view, args.vocab);
    fill(head, plan.model_view);
  }
  SampleRow row = Rows::row_of(args, plan.row);
  if (plan.draw_view != kNone) {
    const ViewFound& drawn = host_results_.at<ViewFound>(view_found_)[plan.draw_view];
    fill(edited ? edited_head : head, plan.draw_view);
    if (list_.views[plan.draw_view].flags & kViewMass) found.mass = mass_of(plan.draw_view, args.vocab);
    found.model_logits = {host_results_.at<float>(model_logits_) + uint64_t{list_.views[plan.draw_view].list} * kListCapacity, std::min(drawn.n, kListCapacity)};
    // Every value that is not listed lies this many units below the largest, or more.
    const float distance = static_cast<float>(std::min(drawn.end_bin, kBins - kBinsPerUnit)) / kBinsPerUnit;
    found.tail_weight = turbo_exp(-distance / std::max(row.temperature, 1.0f)) * 1.00001f;
  }
  found.model = head;
  found.edited = edited ? &edited_head : nullptr;
  SampleAnswer answer = answer_of(args, plan.row);
  if (!answer_row(distribution_, row, found, answer)) return false;
  finish(args, plan.row, answer);
  return true;
}

void DeviceSampler::run_round(const turbo_sample& args, const Round& round) {
  turbo_stream* const stream = kernels_.device()->stream;
  clean_scratch();
  if (!list_.works.empty()) enqueue_works(args);
  copy_rows(args, round.whole.data(), static_cast<uint32_t>(round.whole.size()));
  kernels_.sync(stream);
  dirty_ = false;
  answer_copied(args, round.whole.data(), static_cast<uint32_t>(round.whole.size()));
  counts_.whole += round.whole.size();
  undecided_.clear();
  for (size_t i = round.begin; i < round.end; ++i) {
    const Plan& plan = plans_[i];
    if (plan.way != Plan::Way::found) continue;
    bool decided = false;
    const turbo_status thrown = guarded(nullptr, [&] { decided = answer_found(args, plan); });
    if (thrown != TURBO_OK) {
      SampleAnswer answer = answer_of(args, plan.row);
      answer.status = thrown;
      finish(args, plan.row, answer);
    } else if (!decided) {
      undecided_.push_back(plan.row);
    }
    ++(decided ? counts_.found : counts_.undecided);
  }
  for (size_t first = 0; first < undecided_.size(); first += n_whole_) {
    const auto n = static_cast<uint32_t>(std::min<size_t>(n_whole_, undecided_.size() - first));
    copy_rows(args, undecided_.data() + first, n);
    kernels_.sync(stream);
    answer_copied(args, undecided_.data() + first, n);
  }
}

}  // namespace turbo::sample_standard
