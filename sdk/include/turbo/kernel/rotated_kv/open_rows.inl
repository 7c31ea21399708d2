// Rows of halves: the open form. Part of kernels.inl. Attention on them is that of every codec of plain halves.

static bool store_open(const float* src, const float* center, uint64_t d, uint16_t* row) {
  for (uint64_t i = 0; i < d; i += 16) {
    const Vec16 x = load(src + i);
    if (any_nan(sub(x, x))) return false;
  }
  for (uint64_t i = 0; i < d; i += 16) {
    const Vec16 x = center ? sub(load(src + i), load(center + i)) : load(src + i);
    store_f16_n(row + i, max_gt(min_lt(x, set1(65504.0f)), set1(-65504.0f)), 16);
  }
  return true;
}

static void load_open(const uint16_t* row, uint64_t d, float* dst) {
  for (uint64_t i = 0; i < d; i += 16) store(dst + i, load_f16(row + i));
}

static void open_scores(const RowRun& run, const float* queries, uint64_t query_stride, float* out, uint64_t score_stride) {
  scores<F16, false>(run, queries, query_stride, out, score_stride);
}
static void open_values(const RowRun& run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  accumulate<F16, false>(run, weights, weight_stride, out, out_stride);
}
