// The tokens of one sequence, appended by the engine thread and read by ghosts without a lock, and how many of them the
// corpus has.
#pragma once

#include <turbo/draft/draft_nodes.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace turbo::phantom {

class Text {
 public:
  static constexpr uint32_t kChunk = 4096, kChunks = 256;
  static constexpr uint32_t kMostTokens = kChunk * kChunks;

  // [engine] What is past kMostTokens is not kept.
  void append(std::span<const int32_t> tokens) {
    uint32_t size = size_.load(std::memory_order_relaxed);
    for (const int32_t token : tokens) {
      if (size == kMostTokens) break;
      auto& chunk = chunks_[size / kChunk];
      if (!chunk) chunk = std::make_unique<int32_t[]>(kChunk);
      chunk[size % kChunk] = token;
      ++size;
    }
    size_.store(size, std::memory_order_release);
  }
  // [any] Below size() only.
  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  int32_t operator[](uint32_t i) const { return chunks_[i / kChunk][i % kChunk]; }
  void copy(uint32_t from, uint32_t to, std::vector<int32_t>& out) const {
    out.clear();
    for (uint32_t i = from; i < to; ++i) out.push_back((*this)[i]);
  }

  // Tokens that the corpus has heard. Changed only by who holds the right to write the corpus.
  std::atomic<uint32_t> inserted{0};

 private:
  std::array<std::unique_ptr<int32_t[]>, kChunks> chunks_;
  std::atomic<uint32_t> size_{0};
};

/// Copies from the sequence's own text: the places within the newest kLookBack of its first `size` tokens that repeat the
/// longest end (of at least kLeastMatch tokens) of `context`, and what followed there. At most two continuations that
/// begin with different tokens; of equally long matches the latest wins.
class TextLookup {
 public:
  static constexpr uint32_t kLookBack = 8192, kLeastMatch = 2;

  void match(const Text& text, uint32_t size, std::span<const int32_t> context, uint32_t max_nodes, draft::DraftNodes& out) {
    out.clear();
    if (context.size() < kLeastMatch || size < kLeastMatch + 1 || max_nodes == 0) return;
    Place best{}, second{};
    const int32_t last = context.back();
    const uint32_t stop = size > kLookBack ? size - kLookBack : 0;
    for (uint32_t at = size - 1; at-- > stop;) {
      if (text[at] != last) continue;
      const uint32_t length = match_length(text, at, context);
      if (length < kLeastMatch) continue;
      const int32_t next = text[at + 1];
      if (length > best.length) {
        if (best.length > 0 && next != best.next) second = best;
        best = {at, length, next};
      } else if (next != best.next && length > second.length) {
        second = {at, length, next};
      }
    }
    if (best.length == 0) return;
    out.match_length = best.length;
    chain(text, size, best, 0.7f, max_nodes, out);
    if (second.length > 0) chain(text, size, second, 0.2f, max_nodes, out);
  }

 private:
  struct Place {
    uint32_t at, length;
    int32_t next;
  };

  static uint32_t match_length(const Text& text, uint32_t at, std::span<const int32_t> context) {
    uint32_t length = 1;
    while (length < context.size() && length <= at && text[at - length] == context[context.size() - 1 - length]) ++length;
    return length;
  }
  static void chain(const Text& text, uint32_t size, const Place& place, float first, uint32_t max_nodes, draft::DraftNodes& out) {
    int32_t parent = -1;
    float score = first;
    for (uint32_t i = place.at + 1; i < size && out.size() < max_nodes; ++i, score *= 0.9f) {
      out.tokens.push_back(text[i]);
      out.parents.push_back(parent);
      out.scores.push_back(score);
      parent = static_cast<int32_t>(out.size()) - 1;
    }
  }
};

}  // namespace turbo::phantom
