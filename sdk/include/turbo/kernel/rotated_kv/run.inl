// What scores.inl and values.inl share: scales of a run, fetching ahead. Part of kernels.inl.

// Scale k of row i of the run.
static inline float scale_at(const Scheme& s, const PackedRun& run, uint64_t i, uint64_t k) {
  return scale_of_row(s.page, run.page, run.row_begin + i, k);
}

// The one scale of each row of the run, zeros behind them up to a multiple of 16.
static void load_scales(const Scheme& s, const PackedRun& run, float* g) {
  const uint8_t* at = run.page + scale_offset(s.page, run.row_begin);
  for (uint64_t i = 0; i < run.n_rows; i += 16) {
    const uint64_t n = run.n_rows - i < 16 ? run.n_rows - i : 16;
    if (s.page.scale_bytes == 2 && n == 16) {
      store(g + i, load_f16(reinterpret_cast<const uint16_t*>(at + i * 2)));
    } else if (s.page.scale_bytes == 2) {
      uint16_t halves[16] = {0};
      memcpy(halves, at + i * 2, n * 2);
      store(g + i, load_f16(halves));
    } else {
      float wide[16] = {0};
      memcpy(wide, at + i * 4, n * 4);
      store(g + i, load(wide));
    }
  }
}

// Lines of the page ahead where the kernel reads now: those that begin within the row, and with the first row of the
// run its scales. Fine steps matter: asked for in one go, lines fill the miss buffers and the kernel's own loads wait.
static inline void fetch_row(const Scheme& s, const PackedRun& run, uint64_t i) {
  const uint64_t from = code_offset(s.page, run.row_begin + i), end = from + s.page.code_pitch;
  for (uint64_t at = (from + 63) / 64 * 64; at < end; at += 64) kernel::fetch_line(run.ahead + at);
  if (i) return;
  const uint64_t scales = scale_offset(s.page, run.row_begin), last = scale_offset(s.page, run.row_begin + run.n_rows);
  for (uint64_t at = scales / 64 * 64; at < last; at += 64) kernel::fetch_line(run.ahead + at);
}
