// Cycles of drafting and verification over the chain's table: who waits for lengths, which cycles copy, and text that does
// not depend on what is fused.
#include <turbo/abi/draft/verify_device.h>
#include <turbo/kernel/chain_ops.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "chain_rig.h"
#include "kernels.h"

namespace turbo {
namespace {

struct Rig : ChainRig {
  const turbo_tree_ops* tree = sampler.component.interface<turbo_tree_ops>(TURBO_TREE_OPS_DRAFT);

  template <typename T>
  T* pinned(size_t n) {
    return static_cast<T*>(device.api()->allocate(device.api()->ctx, TURBO_MEMORY_PINNED, n * sizeof(T), "test", nullptr));
  }
  void copy(void* to, const void* from, uint64_t bytes, uint32_t direction) {
    ASSERT_EQ(device.api()->copy(device.api()->ctx, stream, to, from, bytes, direction, &error), TURBO_OK) << error.message;
  }
  void sync() { ASSERT_EQ(device.api()->sync(device.api()->ctx, stream, &error), TURBO_OK) << error.message; }
};

/// What a verification leaves and a commit reads, with the lengths a request has by its row.
struct Commit {
  uint32_t b, w;
  int32_t *predict, *index, *lens, *seq, *slot, *new_lens, *relay, *offsets;
  int64_t *bonus, *select;

  Commit(Rig& rig, uint32_t b, uint32_t w, const std::vector<int32_t>& lengths)
      : b(b), w(w), predict(rig.make<int32_t>(b * w, 5)), lens(rig.make<int32_t>(b)), seq(rig.device.upload(lengths)), new_lens(rig.make<int32_t>(b, -7)),
        relay(rig.make<int32_t>(b, -7)), offsets(rig.make<int32_t>(b + 1, -7)), bonus(rig.make<int64_t>(b)), select(rig.make<int64_t>(b)) {
    std::vector<int32_t> rows(b * w), slots(b);
    std::iota(rows.begin(), rows.end(), 0);
    for (uint32_t i = 0; i < b; ++i) slots[i] = static_cast<int32_t>(b - 1 - i);
    index = rig.device.upload(rows);
    slot = rig.device.upload(slots);
  }
  turbo_chain_commit args() const {
    turbo_chain_commit a{};
    a.struct_size = sizeof a;
    a.n_requests = b, a.width = w, a.relay_size = b, a.predict = predict, a.accept_index = index, a.accept_lens = lens, a.seq = seq, a.slot = slot;
    a.bonus = bonus, a.new_lens = new_lens, a.select = select, a.relay_lens = relay, a.accept_offsets = offsets;
    return a;
  }
};

turbo_chain_tree tree_of(Rig& rig, uint32_t b, uint32_t w, const int32_t* seq) {
  turbo_chain_tree t{};
  t.struct_size = sizeof t;
  t.n_requests = b, t.width = w, t.seq = seq, t.bonus = rig.make<int64_t>(b), t.drafts = rig.make<int64_t>(b * w), t.draft_stride = w;
  t.tokens = rig.make<int64_t>(b * w), t.positions = rig.make<int64_t>(b * w), t.retrieve_index = rig.make<int64_t>(b * w);
  t.next_token = rig.make<int64_t>(b * w), t.next_sibling = rig.make<int64_t>(b * w);
  return t;
}

}  // namespace

// N8: lengths that stay on the device are in stream order, and nobody waits. Whoever wants them on the host waits once, and
// has the new ones then and not before.
TEST(ChainCycle, OnlyWhoReadsLengthsWaits) {
  constexpr uint32_t b = 3, w = 4;
  Rig rig;
  Commit commit(rig, b, w, {10, 20, 30});
  rig.device.release(commit.lens);
  commit.lens = rig.device.upload(std::vector<int32_t>{4, 1, 2});
  const turbo_chain_commit args = commit.args();
  const turbo_chain_tree next = tree_of(rig, b, w, commit.new_lens);
  int32_t* const seen = rig.pinned<int32_t>(b);
  rig.device.counts = {};
  ASSERT_EQ(rig.chain->commit(rig.self, rig.stream, &args, &rig.error), TURBO_OK) << rig.error.message;
  ASSERT_EQ(rig.chain->build_tree(rig.self, rig.stream, &next, &rig.error), TURBO_OK);
  EXPECT_EQ(rig.device.counts.syncs + rig.device.counts.copies, 0u) << "nobody waits for what is not read";
  rig.copy(seen, commit.relay, b * sizeof(int32_t), TURBO_COPY_TO_HOST);
  EXPECT_NE(seen[2], 14) << "the copy has not been waited for, so this test can tell";
  rig.sync();
  EXPECT_EQ(rig.device.counts.syncs, 1u);
  EXPECT_EQ((std::vector<int32_t>(seen, seen + b)), (std::vector<int32_t>{32, 21, 14}));
  EXPECT_EQ(rig.device.download(next.positions, b * w), (std::vector<int64_t>{14, 15, 16, 17, 21, 22, 23, 24, 32, 33, 34, 35}));
}

// N9: lengths go from cycle to cycle on the device. A cycle copies to the device only when it gives a request a block, and
// the host, which knows the most that a length can be, reads lengths only then.
TEST(ChainCycle, CyclesWithoutNewBlocksCopyNothing) {
  constexpr uint32_t b = 3, w = 4, block = 16, stride = 20 * block, cycles = 60;
  Rig rig;
  std::mt19937 rng(4);
  std::vector<int32_t> length{5, 0, 14}, slots(b * stride, -1), blocks(b, 0), most = length;
  Commit commit(rig, b, w, length);
  int32_t *const table = rig.device.upload(slots), *const where = rig.make<int32_t>(b * w, -9);
  int32_t *const staged = rig.pinned<int32_t>(b * stride), *const read = rig.pinned<int32_t>(b);
  std::vector<int32_t*> lens_of_cycle;
  std::vector<std::vector<int32_t>> accepted;
  for (uint32_t c = 0; c < cycles; ++c) {
    accepted.emplace_back();
    for (uint32_t i = 0; i < b; ++i) accepted.back().push_back(1 + static_cast<int32_t>(rng() % (c % 9 < 6 ? 2 : w)));
    lens_of_cycle.push_back(rig.device.upload(accepted.back()));
  }
  int32_t next_block = 0;
  uint32_t with = 0, without = 0;
  turbo_chain_tree tree = tree_of(rig, b, w, commit.seq);
  tree.slot_table = table, tree.slot_stride = stride, tree.slots = where;
  for (uint32_t c = 0; c < cycles; ++c) {
    rig.device.counts = {};
    const auto full = [&](uint32_t i) { return most[i] + static_cast<int32_t>(w) > blocks[i] * static_cast<int32_t>(block); };
    bool allocates = full(0) || full(1) || full(2);
    if (allocates && c > 0) {  // what is really used decides
      rig.copy(read, commit.seq, b * sizeof(int32_t), TURBO_COPY_TO_HOST);
      rig.sync();
      for (uint32_t i = 0; i < b; ++i) EXPECT_EQ(read[i], length[i]) << "cycle " << c;
      std::copy_n(read, b, most.begin());
      allocates = full(0) || full(1) || full(2);
    }
    const uint32_t reads = rig.device.counts.copies;
    if (allocates) {
      for (uint32_t i = 0; i < b; ++i)
        for (; full(i); ++blocks[i], next_block += 3)
          for (uint32_t at = 0; at < block; ++at) slots[i * stride + static_cast<uint32_t>(blocks[i]) * block + at] = next_block * static_cast<int32_t>(block) + static_cast<int32_t>(at);
      std::copy(slots.begin(), slots.end(), staged);
      rig.copy(table, staged, slots.size() * sizeof(int32_t), TURBO_COPY_TO_DEVICE);
    }
    ASSERT_EQ(rig.chain->build_tree(rig.self, rig.stream, &tree, &rig.error), TURBO_OK);
    commit.lens = lens_of_cycle[c];
    const turbo_chain_commit args = commit.args();
    ASSERT_EQ(rig.chain->commit(rig.self, rig.stream, &args, &rig.error), TURBO_OK);
    EXPECT_EQ(rig.device.counts.copies, reads + (allocates ? 1 : 0)) << "cycle " << c;
    EXPECT_EQ(rig.device.counts.syncs, reads) << "cycle " << c;
    (allocates ? with : without) += 1;
    const std::vector<int32_t> placed = rig.device.download(where, b * w);
    for (uint32_t i = 0; i < b; ++i)
      for (uint32_t j = 0; j < w; ++j) {
        EXPECT_EQ(placed[i * w + j], slots[i * stride + static_cast<uint32_t>(length[i]) + j]) << "cycle " << c << ", request " << i;
        EXPECT_GE(placed[i * w + j], 0);
      }
    for (uint32_t i = 0; i < b; ++i) length[i] += accepted[c][i], most[i] += w;
    EXPECT_EQ(rig.device.download(commit.new_lens, b), length) << "cycle " << c;
    std::swap(commit.seq, commit.new_lens);
    tree.seq = commit.seq;
  }
  EXPECT_GT(with, 5u);
  EXPECT_GT(without, 20u);
}

// N11: sums over the accepted lengths, padded requests left out; the same for every cut of the batch into blocks, whose
// threads never look at each other's lanes. (Devices with waves of 64 are refused where devices are chosen.)
TEST(ChainCycle, SumsOfAcceptedLengths) {
  std::mt19937 rng(3);
  for (const uint32_t threads : {32u, 64u, 128u})
    for (const uint32_t b : {1u, 2u, 31u, 32u, 33u, 63u, 64u, 65u, 127u, 128u, 129u, 255u, 256u, 257u, 299u, 300u}) {
      constexpr uint32_t w = 7;
      std::vector<int32_t> predict(b * w), index(b * w), lens(b), seq(b, 3), slot(b), new_lens(b), relay(b), offsets(b + 2, -77), want{0};
      std::vector<int64_t> bonus(b), select(b);
      std::iota(index.begin(), index.end(), 0);
      for (uint32_t i = 0; i < b; ++i) {
        lens[i] = 1 + static_cast<int32_t>(rng() % w);
        slot[i] = rng() % 5 == 0 ? -1 : static_cast<int32_t>(i);
        want.push_back(want.back() + (slot[i] < 0 ? 0 : lens[i]));
      }
      gpu::ChainCommitArgs a{b, w, predict.data(), index.data(), lens.data(), seq.data(), slot.data(), b, 0, bonus.data(), new_lens.data(), select.data(), relay.data(), offsets.data()};
      kernels::launch("chain_commit", (b + threads - 1) / threads, a, threads);
      want.push_back(-77);
      ASSERT_EQ(offsets, want) << b << " requests, blocks of " << threads;
      a.accept_offsets = nullptr;
      kernels::launch("chain_commit", (b + threads - 1) / threads, a, threads);
    }
}

namespace {

/// A model of the last three tokens with few different logits, so that greatest values are tied, and a drafter that agrees
/// with it in three of four contexts.
struct Toy {
  static constexpr uint32_t kVocab = 61;
  static std::vector<float> logits(const std::vector<int32_t>& text, bool draft) {
    uint32_t h = 2166136261u;
    for (size_t i = text.size() - 3; i < text.size(); ++i) h = (h ^ static_cast<uint32_t>(text[i])) * 16777619u;
    std::mt19937 rng(h);
    if (draft && rng() % 4 == 0) h = rng();
    rng.seed(h ^ 0x9e3779b9u);
    std::vector<float> x(kVocab);
    for (float& v : x) v = kernels::as_bf16(2 + static_cast<float>(rng() % 24) / 8);
    return x;
  }
  static int32_t next(const std::vector<int32_t>& text, bool draft = false) {
    const std::vector<float> x = logits(text, draft);
    return static_cast<int32_t>(chain_ops::row_argmax(x.data(), kVocab).index);
  }
};

struct Request {
  std::vector<int32_t> text;  // three tokens of prompt, then what was said
  size_t wanted;              // tokens to say
  uint32_t joins;             // in this cycle
  bool runs(uint32_t cycle) const { return cycle >= joins && text.size() < wanted + 3; }
};

/// Requests that come and go, the newest in the first row.
std::vector<Request> requests(uint32_t n) {
  const size_t wanted[] = {500, 60, 131, 90, 202, 41, 75};
  std::vector<Request> all;
  for (uint32_t i = 0; i < n; ++i) all.push_back({{static_cast<int32_t>(i), static_cast<int32_t>(7 * i + 1), 3}, n == 2 ? 500 - 120 * i : wanted[i], 11 * i});
  return all;
}

constexpr uint32_t kWidth = 4;

void say(Request& request, const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens)
    if (request.text.size() < request.wanted + 3) request.text.push_back(token);
}

/// Every step by itself: scans on the host, the general walk over a tree that is a chain, lengths by the host.
void plain_cycle(Rig& rig, const std::vector<Request*>& live) {
  const uint32_t b = static_cast<uint32_t>(live.size());
  std::vector<int64_t> candidates, retrieve, next, sibling(b * kWidth, -1), target;
  for (uint32_t i = 0; i < b; ++i) {
    std::vector<int32_t> text = live[i]->text;
    for (uint32_t j = 0; j < kWidth; ++j) {
      candidates.push_back(text.back());
      retrieve.push_back(i * kWidth + j);
      next.push_back(j + 1 < kWidth ? j + 1 : -1);
      target.push_back(Toy::next(text));
      text.push_back(Toy::next(text, true));
    }
  }
  std::vector<int32_t> predicts(b * kWidth), index(b * kWidth, -1), n_accepted(b);
  const turbo_tree_walk walk{sizeof walk, b, kWidth, kWidth, candidates.data(), retrieve.data(), next.data(), sibling.data(), predicts.data(), index.data(), n_accepted.data()};
  ASSERT_EQ(rig.tree->verify_greedy(rig.self, &walk, target.data(), &rig.error), TURBO_OK) << rig.error.message;
  for (uint32_t i = 0; i < b; ++i) {
    std::vector<int32_t> said;
    for (int32_t j = 0; j <= n_accepted[i]; ++j) said.push_back(predicts[static_cast<size_t>(index[i * kWidth + static_cast<uint32_t>(j)])]);
    say(*live[i], said);
  }
}

/// The fused ops, in batches that are padded to powers of two. Of the results the host reads what it says.
class Fused {
 public:
  Fused(Rig& rig, uint32_t most) : rig_(rig), most_(most) {
    scratch_ = rig.make<char>(rig.chain->scratch_bytes(rig.self, most * kWidth));
    EXPECT_EQ(rig.chain->reset(rig.self, rig.stream, scratch_, most * kWidth, &rig.error), TURBO_OK);
    relay_ = rig.make<int32_t>(most, -7);
  }
  void cycle(const std::vector<Request*>& live, const std::vector<int32_t>& slots) {
    uint32_t b = 1;
    while (b < live.size()) b *= 2;
    std::vector<int32_t> seq(b, 0), slot(b, -1);
    std::vector<int64_t> roots(b, -1);
    for (size_t i = 0; i < live.size(); ++i) seq[i] = static_cast<int32_t>(live[i]->text.size()), slot[i] = slots[i], roots[i] = live[i]->text.back();
    Commit commit(rig_, b, kWidth, seq);
    give(commit.slot, slot);
    std::vector<std::vector<int32_t>> texts(b);
    for (size_t i = 0; i < live.size(); ++i) texts[i] = live[i]->text;
    int64_t *const first = rig_.device.upload(roots), *const token = rig_.make<int64_t>(b), *const drafts = rig_.make<int64_t>(b * kWidth, -1);
    for (uint32_t step = 0; step + 1 < kWidth; ++step) {
      float* const logits = rows(texts, true);
      turbo_draft_step draft{sizeof draft, b, logits, Toy::kVocab, Toy::kVocab, step + 1, scratch_, token, nullptr, drafts, kWidth, step == 0 ? first : nullptr, nullptr, nullptr, nullptr};
      ASSERT_EQ(rig_.chain->draft_step(rig_.self, rig_.stream, &draft, &rig_.error), TURBO_OK) << rig_.error.message;
      const std::vector<int64_t> drafted = rig_.device.download(token, b);
      for (size_t i = 0; i < live.size(); ++i) texts[i].push_back(static_cast<int32_t>(drafted[i]));
      rig_.device.release(logits);
    }
    std::vector<std::vector<int32_t>> places(b * kWidth);
    for (size_t i = 0; i < live.size(); ++i)
      for (uint32_t j = 0; j < kWidth; ++j) places[i * kWidth + j].assign(texts[i].begin(), texts[i].end() - (kWidth - 1 - j));
    float* const logits = rows(places, false);
    int32_t* const correct = rig_.make<int32_t>(b, -7);
    turbo_chain_verify verify{sizeof verify, b, kWidth, Toy::kVocab, logits, Toy::kVocab, scratch_, drafts, commit.predict, commit.index, correct, commit.lens, nullptr, nullptr};
    ASSERT_EQ(rig_.chain->verify(rig_.self, rig_.stream, &verify, &rig_.error), TURBO_OK) << rig_.error.message;
    turbo_chain_commit args = commit.args();
    args.relay_size = most_, args.relay_lens = relay_;
    ASSERT_EQ(rig_.chain->commit(rig_.self, rig_.stream, &args, &rig_.error), TURBO_OK) << rig_.error.message;
    tell(live, slots, commit, correct);
    for (void* pointer : std::initializer_list<void*>{commit.predict, commit.index, commit.lens, commit.seq, commit.slot, commit.new_lens, commit.relay, commit.offsets, commit.bonus,
                                                      commit.select, first, token, drafts, logits, correct})
      rig_.device.release(pointer);
  }

 private:
  template <typename T>
  void give(T*& array, const std::vector<T>& values) {
    rig_.device.release(array);
    array = rig_.device.upload(values);
  }
  float* rows(const std::vector<std::vector<int32_t>>& texts, bool draft) {
    std::vector<float> all;
    for (const std::vector<int32_t>& text : texts) {
      const std::vector<float> row = text.empty() ? std::vector<float>(Toy::kVocab) : Toy::logits(text, draft);  // padding: zeros
      all.insert(all.end(), row.begin(), row.end());
    }
    return rig_.device.upload(all);
  }
  void tell(const std::vector<Request*>& live, const std::vector<int32_t>& slots, const Commit& commit, const int32_t* correct) {
    const std::vector<int32_t> predict = rig_.device.download(commit.predict, commit.b * kWidth), lens = rig_.device.download(commit.lens, commit.b),
                               counted = rig_.device.download(correct, commit.b), relay = rig_.device.download(relay_, most_),
                               offsets = rig_.device.download(commit.offsets, commit.b + 1);
    const std::vector<int64_t> bonus = rig_.device.download(commit.bonus, commit.b);
    int32_t before = 0;
    for (size_t i = 0; i < live.size(); ++i) {
      EXPECT_EQ(lens[i], counted[i] + 1);
      EXPECT_EQ(relay[static_cast<size_t>(slots[i])], static_cast<int32_t>(live[i]->text.size()) + lens[i]);
      EXPECT_EQ(offsets[i], before);
      before += lens[i];
      const auto from = predict.begin() + static_cast<std::ptrdiff_t>(i * kWidth);
      EXPECT_EQ(bonus[i], from[lens[i] - 1]);
      say(*live[i], std::vector<int32_t>(from, from + lens[i]));
    }
    EXPECT_EQ(offsets.back(), before) << "padded requests accept nothing";
  }

  Rig& rig_;
  const uint32_t most_;
  char* scratch_;
  int32_t* relay_;
};

template <typename Cycle>
std::vector<Request> talk(uint32_t n, uint32_t& cycles, Cycle&& cycle) {
  std::vector<Request> all = requests(n);
  for (cycles = 0; cycles < 2000; ++cycles) {
    std::vector<Request*> live;
    std::vector<int32_t> slots;
    for (uint32_t i = n; i-- > 0;)
      if (all[i].runs(cycles)) live.push_back(&all[i]), slots.push_back(static_cast<int32_t>((i + 3) % n));
    if (live.empty() && std::none_of(all.begin(), all.end(), [&](const Request& r) { return r.joins > cycles; })) break;
    if (!live.empty()) cycle(live, slots);
  }
  return all;
}

}  // namespace

// N12: the text of the fused path is that of every step by itself, and that of plain greedy decoding.
TEST(ChainCycle, TextDoesNotDependOnFusion) {
  for (const uint32_t n : {1u, 2u, 7u}) {
    Rig rig;
    Fused fused(rig, 8);
    uint32_t fused_cycles = 0, plain_cycles = 0;
    const std::vector<Request> got = talk(n, fused_cycles, [&](const auto& live, const auto& slots) { fused.cycle(live, slots); });
    const std::vector<Request> want = talk(n, plain_cycles, [&](const auto& live, const auto&) { plain_cycle(rig, live); });
    EXPECT_EQ(fused_cycles, plain_cycles);
    EXPECT_LT(fused_cycles, 400u) << "drafts are accepted";
    EXPECT_GT(fused_cycles, 130u) << "and refused";
    for (uint32_t i = 0; i < n; ++i) {
      EXPECT_EQ(got[i].text, want[i].text) << n << " requests, request " << i;
      std::vector<int32_t> greedy = requests(n)[i].text;
      while (greedy.size() < got[i].wanted + 3) greedy.push_back(Toy::next(greedy));
      EXPECT_EQ(got[i].text, greedy) << n << " requests, request " << i;
    }
    EXPECT_EQ(got[0].text.size(), 503u);
  }
}

}  // namespace turbo
