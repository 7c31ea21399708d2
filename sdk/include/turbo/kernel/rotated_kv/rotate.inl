// Rotations on Vec16. Part of kernels.inl. The order of operations is the same on every ISA: butterflies of stride 1, 2,
// 4, .. inside blocks, then the seed's sums with columns rising.

static void turn_pairs(const Rotation& r, const float* x, float* y, bool back) {
  const uint64_t quarter = r.d / 4;
  for (uint64_t half = 0; half < 2; ++half)
    for (uint64_t k = 0; k < quarter; k += 16) {
      const uint64_t n = quarter - k < 16 ? quarter - k : 16, i = half * 2 * quarter + k, j = i + quarter, g = half * quarter + k;
      const Vec16 c = load_n(r.first + g, n), drawn = load_n(r.second + g, n), s = back ? negate(drawn) : drawn;
      const Vec16 a = load_n(x + i, n), b = load_n(x + j, n);
      store_n(y + i, fma(c, a, negate(mul(s, b))), n);
      store_n(y + j, fma(s, a, mul(c, b)), n);
    }
}

static void turn_quads(const Rotation& r, const float* x, float* y, bool back) {
  const uint64_t quarter = r.d / 4;
  for (uint64_t k = 0; k < quarter; k += 16) {
    const uint64_t n = quarter - k < 16 ? quarter - k : 16;
    Vec16 p[4];
    for (uint64_t c = 0; c < 4; ++c) p[c] = load_n(x + c * quarter + k, n);
    for (uint64_t row = 0; row < 4; ++row) {
      Vec16 sum = zero();
      for (uint64_t c = 0; c < 4; ++c)
        sum = fma(load_n(r.first + (back ? c * 4 + row : row * 4 + c) * quarter + k, n), p[c], sum);
      store_n(y + row * quarter + k, sum, n);
    }
  }
}

static void multiply(const float* columns, uint64_t d, const float* x, float* y) {
  for (uint64_t i = 0; i < d; i += 16) {
    Vec16 sum = zero();
    for (uint64_t c = 0; c < d; ++c) sum = fma(set1(x[c]), load(columns + c * d + i), sum);
    store(y + i, sum);
  }
}

// Butterflies of strides 1 .. block / 2 inside each block, in place.
static void butterflies(float* v, uint64_t d, uint64_t block) {
  for (uint64_t i = 0; i < d; i += 16) {
    Vec16 x = load(v + i);
    if (block > 1) x = butterfly<1>(x);
    if (block > 2) x = butterfly<2>(x);
    if (block > 4) x = butterfly<4>(x);
    if (block > 8) x = butterfly<8>(x);
    store(v + i, x);
  }
  for (uint64_t h = 16; h < block; h *= 2)
    for (uint64_t base = 0; base < d; base += 2 * h)
      for (uint64_t i = base; i < base + h; i += 16) {
        const Vec16 a = load(v + i), b = load(v + i + h);
        store(v + i, add(a, b));
        store(v + i + h, sub(a, b));
      }
}

// Seed 12 or 20 across blocks, in place.
static void mix_blocks(const Rotation& r, float* v, bool transposed) {
  const uint64_t order = r.seed, block = r.block;
  float tiled[20 * 16], out[kMaxDim];
  if (block < 16)
    for (uint64_t c = 0; c < order; ++c)
      for (uint64_t i = 0; i < 16; ++i) tiled[c * 16 + i] = v[c * block + (i & (block - 1))];  // blocks are powers of two
  for (uint64_t i = 0; i < r.d; i += 16) {
    const float* sign = r.mix[transposed] + i * order;
    Vec16 sum = zero();
    for (uint64_t c = 0; c < order; ++c)  // products with +-1 are exact: these are plain sums
      sum = fma(load(sign + c * 16), block < 16 ? load(tiled + c * 16) : load(v + c * block + (i & (block - 1))), sum);
    store(out + i, sum);
  }
  for (uint64_t i = 0; i < r.d; i += 16) store(v + i, load(out + i));
}

static void transform(const Rotation& r, float* v, bool transposed) {
  if (r.seed == 0) return;
  butterflies(v, r.d, r.block);
  if (r.seed > 1) mix_blocks(r, v, transposed);
}

// y = R x / factor
static void rotate_raw(const Rotation& r, const float* x, float* y) {
  switch (r.turn) {
    case Turn::signs:
      for (uint64_t i = 0; i < r.d; i += 16) store(y + i, mul(load(r.first + i), load(x + i)));
      break;
    case Turn::givens: turn_pairs(r, x, y, false); break;
    case Turn::quaternion: turn_quads(r, x, y, false); break;
    case Turn::dense: multiply(r.first, r.d, x, y); break;
  }
  transform(r, y, false);
}

// x = R^T y * scale; y is overwritten.
static void unrotate_scaled(const Rotation& r, float* y, float scale, float* x) {
  const Vec16 by = set1(r.factor * scale);
  transform(r, y, true);
  switch (r.turn) {
    case Turn::signs:
      for (uint64_t i = 0; i < r.d; i += 16) store(x + i, mul(load(r.first + i), load(y + i)));
      break;
    case Turn::givens: turn_pairs(r, y, x, true); break;
    case Turn::quaternion: turn_quads(r, y, x, true); break;
    case Turn::dense: multiply(r.second, r.d, y, x); break;
  }
  for (uint64_t i = 0; i < r.d; i += 16) store(x + i, mul(load(x + i), by));
}

static void rotate(const Rotation& r, const float* x, float* y) {
  const Vec16 by = set1(r.factor);
  rotate_raw(r, x, y);
  for (uint64_t i = 0; i < r.d; i += 16) store(y + i, mul(load(y + i), by));
}

static void unrotate(const Rotation& r, const float* y, float* x) {
  float own[kMaxDim];
  for (uint64_t i = 0; i < r.d; i += 16) store(own + i, load(y + i));
  unrotate_scaled(r, own, 1.0f, x);
}
