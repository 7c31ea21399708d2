// Mail in kernels: writing and waiting. Layout in mail_layout.hpp.
//
// Waiting is bounded: after `patience` looks a wave marks the step as stopped, and every other wave that waits sees that and
// goes on with what it has. Nobody reads the results of such a step.
#pragma once

#include <turbo/kernel/gpu/mail_layout.hpp>
#include <turbo/kernel/gpu/q8.hpp>

namespace turbo::gpu {

struct Post {
  uint32_t tag, patience;
  uint32_t *stopped, *report;
};

#if defined(TB_NVIDIA)
TB_DEVICE Words4 load_mail(const void* p) {
  unsigned long long a, b;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
  return {static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)};
}
TB_DEVICE void store_mail(void* p, const Words4& w) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(w.x | static_cast<unsigned long long>(w.y) << 32),
               "l"(w.z | static_cast<unsigned long long>(w.w) << 32) : "memory");
}
#else
TB_DEVICE Words4 load_mail(const void* p) {
  const uint64_t* const from = static_cast<const uint64_t*>(p);
  const uint64_t a = load_shared_word(from), b = load_shared_word(from + 1);
  return {static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)};
}
TB_DEVICE void store_mail(void* p, const Words4& w) {
  uint64_t* const to = static_cast<uint64_t*>(p);
  store_shared_word(to, w.x | static_cast<uint64_t>(w.y) << 32);
  store_shared_word(to + 1, w.z | static_cast<uint64_t>(w.w) << 32);
}
#endif

/// Whether to look again. By a wave, the same in all lanes.
class Looks {
 public:
  TB_DEVICE explicit Looks(const Post& post) : post_(post) {}
  TB_DEVICE bool more() {
    if (++n_ % kPause != 0) return true;
    pause();
    if (ballot(load_shared_word(post_.stopped) != 0) == 0) {
      if (n_ < post_.patience) return true;
      store_shared_word(post_.stopped, 1);
      store_shared_word(post_.report, 1);
    }
    return false;
  }

 private:
#if defined(TB_FIBER)
  static constexpr uint32_t kPause = 1;
#else
  static constexpr uint32_t kPause = 64;
#endif
  const Post& post_;
  uint32_t n_ = 0;
};

/// By a wave: look until all lanes say that what they saw has come, or until it is in vain. see() looks once.
template <class See>
TB_DEVICE void look_until(const Post& post, See see) {
  Looks looks(post);
  while (ballot(see()) != kAllLanes && looks.more()) {
  }
}
/// By a wave: N pieces of 16 bytes a lane, piece i at at(i).
template <uint32_t N, class At>
TB_DEVICE void await_mail(const Post& post, At at, Words4 (&w)[N]) {
  look_until(post, [&] {
    TB_UNROLL
    for (uint32_t i = 0; i < N; ++i) w[i] = load_mail(at(i));
    bool there = true;
    TB_UNROLL
    for (uint32_t i = 0; i < N; ++i) there = there && w[i].y >> 16 == post.tag && w[i].w >> 16 == post.tag;
    return there;
  });
}
/// By a wave: N floats a lane, float i at at(i), with the tag in the bits from kTag on.
template <uint32_t kTag, uint32_t N, class At>
TB_DEVICE void await_floats(const Post& post, At at, float (&x)[N]) {
  look_until(post, [&] {
    uint64_t w[N];
    TB_UNROLL
    for (uint32_t i = 0; i < N; ++i) w[i] = load_shared_word(reinterpret_cast<const uint64_t*>(at(i)));
    bool there = true;
    TB_UNROLL
    for (uint32_t i = 0; i < N; ++i) {
      there = there && static_cast<uint32_t>(w[i] >> kTag) == post.tag;
      x[i] = from_bits(static_cast<uint32_t>(w[i]));
    }
    return there;
  });
}

TB_DEVICE void send_float(const Post& post, uint8_t* row, uint64_t column, float x) {
  store_shared_word(reinterpret_cast<uint64_t*>(row + column * kMailFloat), bits(x) | static_cast<uint64_t>(post.tag) << kFloatTag);
}

/// By one wave, lane l holding column l: a tile as write_q8_tile makes it.
TB_DEVICE void send_q8_tile(const Post& post, uint8_t* row, uint32_t tile, float x, float weight) {
  const Q8Value value = q8_value(x, weight);
  uint32_t word = static_cast<uint32_t>(value.code) & 0xffu;  // lane 4 n: word n of the codes
  word |= shuffle_xor(word, 1) << 8;
  word |= shuffle_xor(word, 2) << 16;
  const uint32_t part = lane() % kMailLanes, first = min_of(part * 12, 20);
  uint32_t a = shuffle(word, first), b = shuffle(word, first + 4), c = shuffle(word, first + 8);
  if (part == 2) {  // words 6, 7 lie one place on
    a = b;
    b = c;
    c = bits(value.scale);
  }
  if (part == 3) {
    a = bits(value.sum);
    b = bits(value.squares);
    c = 0;
  }
  if (lane() < kMailLanes)
    store_mail(row + tile * kMailTile + part * 16, {a, (c & 0xffffu) | post.tag << 16, b, c >> 16 | post.tag << 16});
}

}  // namespace turbo::gpu
