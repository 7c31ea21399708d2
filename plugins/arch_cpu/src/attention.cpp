// Attention over the cache in 64-key splits; the arithmetic is fixed in kernels.h.
//
// An item is (row group, kv head, run of splits). With enough groups and kv heads for the team, one item folds all
// splits of its rows in order. Otherwise items store the partials of their splits, and whichever item of a (group,
// kv head) ends last folds them in order: the same operations, so the same bits. The rows of a group that read the
// same cache rows share each load; bits do not depend on that either, since every (query, key) product is its own.
#include "run.h"

#include <algorithm>
#include <cmath>

namespace turbo::arch_cpu {
namespace {

/// Consecutive cache rows in one form that hold consecutive keys of a row's split.
struct Segment {
  const uint8_t* block;
  uint32_t form, row_begin, n, key;  // key: index of the first inside the split
};

/// Views into the member's scratch.
struct Scratch {
  float* scores;  // [query][64]
  float* part;    // [query][V form][v stride]: the split's weighted sum
  float* total;   // same: the fold so far
  float *m, *l, *total_m, *total_l;  // [query]
  float* output;                     // one finished row
  Segment* segments;                 // [row][side][64]
};

class AttendItem {
 public:
  AttendItem(StepRun& run, const AttendJob& job, uint32_t member)
      : run_(run), plan_(run.plan), t_(run.table), job_(job), pool_(*run.plan.pool), keys_(pool_.part(TURBO_KV_SIDE_K, job.layer)),
        values_(pool_.part(TURBO_KV_SIDE_V, job.layer)), gqa_(job.n_heads / pool_.desc.n_kv_heads),
        v_floats_(uint64_t{values_.query_stride} * values_.n_forms()) {
    const uint64_t queries = uint64_t{plan_.group_rows} * plan_.max_gqa;
    uint8_t* raw = plan_.scratch.data() + member * plan_.scratch_stride;
    s_.segments = reinterpret_cast<Segment*>(raw);
    float* next = reinterpret_cast<float*>(raw + align_up(plan_.group_rows * 2 * 64 * sizeof(Segment), 64));
    const auto take = [&next](uint64_t n) { return next += align_up(n, 16), next - align_up(n, 16); };
    s_.scores = take(queries * 64);
    s_.part = take(queries * v_floats_);
    s_.total = take(queries * v_floats_);
    for (float** list : {&s_.m, &s_.l, &s_.total_m, &s_.total_l}) *list = take(queries);
    s_.output = take(values_.query_stride);
  }

  void run(uint32_t item) {
    const AttendCut& cut = plan_.cut;
    uint32_t g = 0;
    {  // last group that begins at or before the item
      uint32_t end = cut.n_groups;
      while (end - g > 1) {
        const uint32_t middle = (g + end) / 2;
        (cut.groups[middle].item_begin <= item ? g : end) = middle;
      }
    }
    group_ = &cut.groups[g];
    const uint32_t n_runs = (group_->splits + cut.splits_per_item - 1) / cut.splits_per_item;
    kv_head_ = (item - group_->item_begin) / n_runs;
    const uint32_t first = (item - group_->item_begin) % n_runs * cut.splits_per_item;
    const uint32_t end = std::min(first + cut.splits_per_item, group_->splits);
    splits_end_ = end;
    if (n_runs == 1) {
      for (uint32_t s = 0; s < end; ++s) {
        split(s);
        fold_split(s);
      }
      finish();
      return;
    }
    for (uint32_t s = first; s < end; ++s) {
      split(s);
      store_split(s);
    }
    std::atomic<uint32_t>& arrived = plan_.arrivals[g * pool_.desc.n_kv_heads + kv_head_];
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 != n_runs) return;
    arrived.store(0, std::memory_order_relaxed);  // for the next layer, behind a barrier
    for (uint32_t s = 0; s < group_->splits; ++s) {
      load_split(s);
      fold_split(s);
    }
    finish();
  }

 private:
  uint32_t row(uint32_t r) const { return group_->row_begin + r; }
  uint32_t position(uint32_t r) const { return static_cast<uint32_t>(t_.position[row(r)]); }
  // Keys of split s that the row reads.
  uint32_t n_keys(uint32_t r, uint32_t s) const {
    return position(r) < s * 64 ? 0 : std::min(64u, position(r) + 1 - s * 64);
  }
  Segment* segments(uint32_t r, uint32_t side) const { return s_.segments + (r * 2 + side) * 64; }
  float* part(uint32_t q) const { return s_.part + q * v_floats_; }
  float* total(uint32_t q) const { return s_.total + q * v_floats_; }

  // ---- where keys lie

  // Segments of split s of a row, for one side; returns their number.
  uint32_t locate(uint32_t r, uint32_t s, uint32_t which) const {
    const KvPart& side = pool_.part(which, job_.layer);
    const uint32_t n = n_keys(r, s), p = position(r), i = row(r);
    const int32_t seq = t_.row_seq[i];
    const uint32_t open_from = t_.open_uncommitted ? std::min(p, static_cast<uint32_t>(t_.committed[seq])) / 64 : p / 64;
    const bool open_block = s >= open_from;
    const uint32_t committed = t_.path_length[i] ? static_cast<uint32_t>(t_.committed[seq]) : UINT32_MAX;
    const int32_t* path = t_.path + uint64_t{i} * t_.path_capacity;
    Segment* out = segments(r, which);
    uint32_t count = 0, last_slot = 0;
    bool last_open = false;
    for (uint32_t key = 0; key < n;) {
      const uint32_t at = s * 64 + key;
      const bool open = !side.one_form && (open_block || at < side.layout.sinks);
      uint32_t slot = at, length = 1;
      if (at < committed) {  // every key up to the next change of rule
        length = std::min(n - key, committed - at);
        if (!side.one_form && !open_block && at < side.layout.sinks) length = std::min(length, side.layout.sinks - at);
      } else {
        slot = static_cast<uint32_t>(path[at - committed]);
      }
      if (count && slot == last_slot + 1 && open == last_open && slot % 64 != 0) {
        out[count - 1].n += length;
      } else {
        out[count++] = segment(which, seq, slot, open, length, key);
      }
      last_slot = slot + length - 1;
      last_open = open;
      key += length;
    }
    return count;
  }

  Segment segment(uint32_t which, int32_t seq, uint32_t slot, bool open, uint32_t n, uint32_t key) const {
    const uint64_t at = static_cast<uint64_t>(seq) * t_.block_capacity + slot / 64;
    const int32_t packed_id = t_.block_table[at];
    if (!pool_.part(which, job_.layer).one_form && (open || packed_id < 0))
      return {pool_.open_block(which, job_.layer, t_.open_table[at]), TURBO_KV_FORM_OPEN, slot % 64, n, key};
    return {pool_.packed_block(which, job_.layer, packed_id), TURBO_KV_FORM_PACKED, slot % 64, n, key};
  }

  // ---- one split

  struct RowPlan { uint32_t n, k_segments, v_segments; };

  bool same_source(uint32_t a, uint32_t b) const {
    if (rows_[a].k_segments != 1 || rows_[b].k_segments != 1 || rows_[a].v_segments != 1 || rows_[b].v_segments != 1) return false;
    for (uint32_t which : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
      const Segment &x = *segments(a, which), &y = *segments(b, which);
      if (x.block != y.block || x.form != y.form || x.row_begin != y.row_begin) return false;
    }
    return true;
  }

  void split(uint32_t s) {
    for (uint32_t r = 0; r < group_->n_rows; ++r) {
      rows_[r] = {n_keys(r, s), 0, 0};
      if (rows_[r].n) rows_[r] = {rows_[r].n, locate(r, s, TURBO_KV_SIDE_K), locate(r, s, TURBO_KV_SIDE_V)};
    }
    for (uint32_t r = 0, end; r < group_->n_rows; r = end) {
      end = r + 1;
      if (!rows_[r].n) continue;
      uint32_t longest = rows_[r].n;
      for (; end < group_->n_rows && rows_[end].n && same_source(r, end); ++end) longest = std::max(longest, rows_[end].n);
      score(r, end, longest, s);
    }
    for (uint32_t q = 0; q < group_->n_rows * gqa_; ++q)
      if (rows_[q / gqa_].n) {
        run_.kernels.softmax_split(s_.scores + q * 64, rows_[q / gqa_].n, job_.scale, s_.m + q, s_.l + q);
        std::memset(part(q), 0, v_floats_ * sizeof(float));
      }
    for (uint32_t r = 0, end; r < group_->n_rows; r = end) {
      end = r + 1;
      if (!rows_[r].n) continue;
      while (end < group_->n_rows && rows_[end].n == rows_[r].n && same_source(r, end)) ++end;
      accumulate(r, end, s);
    }
  }

  // The block that this item reads after split s, for the codec to fetch meanwhile; null after the last.
  const void* block_ahead(uint32_t which, uint32_t s) const {
    if (s + 1 >= splits_end_) return nullptr;
    const int32_t id = t_.block_table[static_cast<uint64_t>(t_.row_seq[group_->row_begin]) * t_.block_capacity + s + 1];
    return id < 0 ? nullptr : pool_.packed_block(which, job_.layer, id);
  }

  // Rows [r, end) of split s share their source; keys past a shorter row's end are scored and never used.
  void score(uint32_t r, uint32_t end, uint32_t longest, uint32_t s) {
    for (uint32_t i = 0; i < rows_[r].k_segments; ++i) {
      const Segment& seg = segments(r, TURBO_KV_SIDE_K)[i];
      const uint64_t form = keys_.one_form ? 0 : seg.form;
      const uint64_t place = ((form * pool_.desc.n_kv_heads + kv_head_) * plan_.max_rows + row(r)) * gqa_;
      const float* queries = plan_.row(job_.query, 0) + place * keys_.query_stride;
      const void* ahead = r == 0 ? block_ahead(TURBO_KV_SIDE_K, s) : nullptr;
      const turbo_kv_run keys{sizeof(turbo_kv_run), seg.form, seg.block, seg.row_begin, rows_[r].k_segments == 1 ? longest : seg.n, kv_head_, (end - r) * gqa_, ahead};
      keys_.codec->qk_scores(keys_.self, &keys_.shape, &keys, queries, keys_.query_stride, s_.scores + uint64_t{r} * gqa_ * 64 + seg.key, 64);
    }
  }

  void accumulate(uint32_t r, uint32_t end, uint32_t s) {
    for (uint32_t i = 0; i < rows_[r].v_segments; ++i) {
      const Segment& seg = segments(r, TURBO_KV_SIDE_V)[i];
      const uint64_t form = values_.one_form ? 0 : seg.form;
      const void* ahead = r == 0 ? block_ahead(TURBO_KV_SIDE_V, s) : nullptr;
      const turbo_kv_run keys{sizeof(turbo_kv_run), seg.form, seg.block, seg.row_begin, seg.n, kv_head_, (end - r) * gqa_, ahead};
      values_.codec->pv_accumulate(values_.self, &values_.shape, &keys, s_.scores + uint64_t{r} * gqa_ * 64 + seg.key, 64,
                                   part(r * gqa_) + form * values_.query_stride, v_floats_);
    }
  }

  // ---- partials

  float* stored(uint32_t q, uint32_t s) const {
    const uint64_t head = uint64_t{kv_head_} * gqa_ + q % gqa_;
    const uint64_t at = (uint64_t{row(q / gqa_)} * job_.n_heads + head) * plan_.cut.max_splits + s;
    return reinterpret_cast<float*>(plan_.base(plan_.partials)) + at * plan_.partial_stride;
  }
  void store_split(uint32_t s) const {
    for (uint32_t q = 0; q < group_->n_rows * gqa_; ++q) {
      if (!n_keys(q / gqa_, s)) continue;
      float* to = stored(q, s);
      to[0] = s_.m[q];
      to[1] = s_.l[q];
      std::memcpy(to + 16, part(q), v_floats_ * sizeof(float));
    }
  }
  void load_split(uint32_t s) const {
    for (uint32_t q = 0; q < group_->n_rows * gqa_; ++q) {
      if (!n_keys(q / gqa_, s)) continue;
      const float* from = stored(q, s);
      s_.m[q] = from[0];
      s_.l[q] = from[1];
      std::memcpy(part(q), from + 16, v_floats_ * sizeof(float));
    }
  }

  void fold_split(uint32_t s) const {
    const Kernels& k = run_.kernels;
    for (uint32_t q = 0; q < group_->n_rows * gqa_; ++q) {
      if (!n_keys(q / gqa_, s)) continue;
      if (s == 0) {
        s_.total_m[q] = s_.m[q];
        s_.total_l[q] = s_.l[q];
        std::memcpy(total(q), part(q), v_floats_ * sizeof(float));
        continue;
      }
      const float top = s_.m[q] > s_.total_m[q] ? s_.m[q] : s_.total_m[q], shift = top == -INFINITY ? 0.0f : top;
      const float a = k.exp(s_.total_m[q] - shift), b = k.exp(s_.m[q] - shift);
      s_.total_l[q] = fmaf(s_.total_l[q], a, s_.l[q] * b);
      k.merge(total(q), part(q), a, b, v_floats_);
      s_.total_m[q] = top;
    }
  }

  // O / L in the codec's basis, then back to the model's.
  void finish() const {
    for (uint32_t q = 0; q < group_->n_rows * gqa_; ++q) {
      run_.kernels.normalise(total(q), s_.total_l[q], v_floats_);
      const uint64_t head = uint64_t{kv_head_} * gqa_ + q % gqa_;
      float* out = plan_.row(job_.out, row(q / gqa_)) + head * values_.shape.head_dim;
      const turbo_kv_shape* shape = &values_.shape;
      if (values_.one_form) {
        values_.codec->finish_output(values_.self, shape, TURBO_KV_FORM_PACKED, total(q), out);
        continue;
      }
      values_.codec->finish_output(values_.self, shape, TURBO_KV_FORM_OPEN, total(q), out);
      values_.codec->finish_output(values_.self, shape, TURBO_KV_FORM_PACKED, total(q) + values_.query_stride, s_.output);
      run_.kernels.add(out, s_.output, out, values_.shape.head_dim);
    }
  }

  StepRun& run_;
  turbo_plan& plan_;
  const StepTable& t_;
  const AttendJob& job_;
  const turbo_kv_pool& pool_;
  const KvPart &keys_, &values_;
  const uint32_t gqa_;
  const uint64_t v_floats_;
  Scratch s_{};
  const RowGroup* group_ = nullptr;
  uint32_t kv_head_ = 0, splits_end_ = 0;
  RowPlan rows_[16] = {};
};

}  // namespace

void run_attend_item(StepRun& run, const AttendJob& job, uint32_t item, uint32_t member) { AttendItem(run, job, member).run(item); }

void cut_attention(turbo_plan& plan, const StepTable& table, uint32_t n_threads) {
  AttendCut& cut = plan.cut;
  cut.n_groups = 0;
  cut.max_splits = 0;
  const uint32_t kv_heads = plan.pool->desc.n_kv_heads;
  uint64_t all_splits = 0;
  for (uint32_t row = 0; row < table.n_rows;) {
    RowGroup group{row, 0, 0, 0};
    const int32_t seq = table.row_seq[row];
    for (; row < table.n_rows && table.row_seq[row] == seq && group.n_rows < plan.group_rows; ++row, ++group.n_rows)
      group.splits = std::max(group.splits, static_cast<uint32_t>(table.position[row]) / 64 + 1);
    cut.groups[cut.n_groups++] = group;
    cut.max_splits = std::max(cut.max_splits, group.splits);
    all_splits += group.splits;
  }
  cut.splits_per_item = cut.max_splits;
  const uint64_t wanted = uint64_t{n_threads} * 4, stored = uint64_t{table.n_rows} * plan.max_heads * cut.max_splits;
  if (n_threads > 1 && uint64_t{cut.n_groups} * kv_heads < wanted && stored <= plan.partial_capacity)
    cut.splits_per_item = static_cast<uint32_t>(std::max<uint64_t>(1, (all_splits * kv_heads + wanted - 1) / wanted));
  cut.n_items = 0;
  for (uint32_t g = 0; g < cut.n_groups; ++g) {
    cut.groups[g].item_begin = cut.n_items;
    cut.n_items += kv_heads * ((cut.groups[g].splits + cut.splits_per_item - 1) / cut.splits_per_item);
  }
}

}  // namespace turbo::arch_cpu
