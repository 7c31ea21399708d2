// An n-gram corpus to and from bytes, with its counts, its order of continuations and its order of forgetting.
//
// Little endian: "TURBONGR", version, max depth, n nodes, a fingerprint of the tokenizer; then per node, the most
// recently used first, (parent, token, frequency), where parent is the index of an earlier node plus 1, or 0; then the
// indices of all nodes, children of one parent together and in their order; then a checksum of everything before. The
// writer's thread.
#pragma once

#include <cstring>
#include <functional>
#include <numeric>
#include <turbo/draft/ngram.hpp>

namespace turbo::draft {

class NgramState {
 public:
  static constexpr char kMagic[9] = "TURBONGR";
  static constexpr uint32_t kVersion = 1;
  static constexpr uint64_t kHeaderBytes = 32, kNodeBytes = 16, kChecksumBytes = 8;

  using Write = std::function<void(const void* bytes, size_t n)>;
  using Read = std::function<void(void* bytes, size_t n)>;  // all or throws

  static uint64_t bytes(const NgramCorpus& corpus) {
    return kHeaderBytes + corpus.n_nodes() * kNodeBytes + kChecksumBytes;
  }

  static void save(const NgramCorpus& corpus, uint64_t fingerprint, const Write& write) {
    Out out(write);
    out.bytes(kMagic, 8);
    out.u32(kVersion);
    out.u32(corpus.settings_.max_depth);
    out.u64(corpus.n_nodes());
    out.u64(fingerprint);
    const auto& nodes = corpus.nodes_;
    std::vector<uint32_t> ids;  // in the order of the file
    ids.reserve(corpus.n_nodes());
    for (uint32_t id = nodes[0].older; id != 0; id = nodes[id].older) ids.push_back(id);
    std::vector<uint32_t> number(ids.empty() ? 1 : *std::max_element(ids.begin(), ids.end()) + 1, 0);
    for (uint32_t i = 0; i < ids.size(); ++i) number[ids[i]] = i + 1;
    for (const uint32_t id : ids) {
      out.u32(number[nodes[id].parent]);
      out.u32(nodes[id].token);
      out.u32(nodes[id].frequency);
    }
    const auto children = [&](uint32_t parent) {
      for (uint32_t id = nodes[parent].first_child; id != 0; id = nodes[id].next) out.u32(number[id] - 1);
    };
    children(0);
    for (const uint32_t id : ids) children(id);
    out.finish();
  }

  /// Replaces what the corpus holds; what does not fit its capacity or depth is left out, the least recently used
  /// first. Tokens must be below `vocabulary`. Throws Failure (TURBO_CORRUPT_INPUT: damaged, TURBO_INVALID_ARGUMENT: of
  /// another tokenizer), and then the corpus is empty. `bytes`: size of the state.
  static void load(NgramCorpus& corpus, uint64_t fingerprint, uint32_t vocabulary, uint64_t bytes, const Read& read) {
    corpus.reset();
    try {
      const NgramCorpus::Writing writing(corpus);
      Loader(corpus, vocabulary, read).run(fingerprint, bytes);
    } catch (...) {
      corpus.reset();
      throw;
    }
  }

 private:
  static constexpr size_t kBuffer = 1 << 16;

  class Sum {
   public:
    void add(const uint8_t* bytes, size_t n) {
      for (size_t i = 0; i < n; ++i) value_ = (value_ ^ bytes[i]) * 0x100000001B3u;
    }
    uint64_t value() const { return value_; }

   private:
    uint64_t value_ = 0xCBF29CE484222325u;
  };

  class Out {
   public:
    explicit Out(const Write& write) : write_(write) { buffer_.reserve(kBuffer + 8); }
    void bytes(const char* from, size_t n) {
      buffer_.insert(buffer_.end(), from, from + n);
      if (buffer_.size() >= kBuffer) flush();
    }
    void u32(uint32_t value) { number(value, 4); }
    void u64(uint64_t value) { number(value, 8); }
    void finish() {
      flush();
      u64(sum_.value());
      flush();
    }

   private:
    void number(uint64_t value, int n) {
      for (int i = 0; i < n; ++i) buffer_.push_back(static_cast<uint8_t>(value >> (8 * i)));
      if (buffer_.size() >= kBuffer) flush();
    }
    void flush() {
      sum_.add(buffer_.data(), buffer_.size());
      write_(buffer_.data(), buffer_.size());
      buffer_.clear();
    }
    const Write& write_;
    std::vector<uint8_t> buffer_;
    Sum sum_;
  };

  class In {
   public:
    In(const Read& read, uint64_t bytes) : read_(read), left_(bytes) {}
    uint32_t u32() { return static_cast<uint32_t>(number(4)); }
    uint64_t u64() { return number(8); }
    uint64_t sum() const { return sum_.value(); }

   private:
    uint64_t number(size_t n) {
      uint64_t value = 0;
      for (size_t i = 0; i < n; ++i) {
        if (at_ == buffer_.size()) refill();
        value |= uint64_t{buffer_[at_]} << (8 * i);
        sum_.add(&buffer_[at_++], 1);
      }
      return value;
    }
    void refill() {
      if (left_ == 0) throw damaged("it ends early");
      buffer_.resize(static_cast<size_t>(std::min<uint64_t>(left_, kBuffer)));
      read_(buffer_.data(), buffer_.size());
      left_ -= buffer_.size();
      at_ = 0;
    }
    const Read& read_;
    uint64_t left_;
    std::vector<uint8_t> buffer_;
    size_t at_ = 0;
    Sum sum_;
  };

  static Failure damaged(const std::string& why) {
    return Failure(TURBO_CORRUPT_INPUT, "n-gram state: " + why, "delete the file, or put back a sound copy");
  }
  static void require(bool ok, const char* why) {
    if (!ok) throw damaged(why);
  }

  class Loader {
   public:
    Loader(NgramCorpus& corpus, uint32_t vocabulary, const Read& read)
        : corpus_(corpus), vocabulary_(vocabulary), read_(read) {}

    void run(uint64_t fingerprint, uint64_t bytes) {
      In in(read_, bytes);
      char magic[8];
      for (char& c : magic) c = 0;
      const uint64_t first = in.u64();
      for (int i = 0; i < 8; ++i) magic[i] = static_cast<char>(first >> (8 * i));
      require(std::memcmp(magic, kMagic, 8) == 0, "it does not begin with TURBONGR");
      const uint32_t version = in.u32();
      if (version != kVersion)
        throw Failure(TURBO_UNSUPPORTED, "n-gram state: version " + std::to_string(version) + " is not 1",
                      "delete the file");
      in.u32();  // its depth: a deeper trie is cut, a shallower one is as good as any
      const uint64_t n = in.u64();
      require(n < UINT32_MAX && n <= (bytes - std::min(bytes, kHeaderBytes + kChecksumBytes)) / kNodeBytes &&
                  bytes == kHeaderBytes + n * kNodeBytes + kChecksumBytes,
              "its size is not what its header says");
      if (in.u64() != fingerprint)
        throw Failure(TURBO_INVALID_ARGUMENT, "n-gram state: it was saved with another tokenizer",
                      "use one file per tokenizer");
      nodes(in, n);
      order(in, n);
      const uint64_t sum = in.sum();
      require(in.u64() == sum, "its checksum is wrong");
    }

   private:
    void nodes(In& in, uint64_t n) {
      const uint64_t kept = std::min(n, corpus_.settings_.capacity - 1);
      ids_.assign(kept, 0);
      depths_.assign(kept, 0);
      uint32_t oldest = 0;
      for (uint64_t i = 0; i < n; ++i) {
        const uint32_t parent = in.u32(), token = in.u32(), frequency = in.u32();
        require(parent <= i, "a node comes before its parent");
        require(token < vocabulary_, "a token is outside the vocabulary");
        if (i >= kept || (parent != 0 && ids_[parent - 1] == 0)) continue;
        const uint32_t depth = parent == 0 ? 1 : depths_[parent - 1] + 1;
        if (depth > corpus_.settings_.max_depth) continue;
        const uint32_t parent_id = parent == 0 ? 0 : ids_[parent - 1];
        require(corpus_.table_.find(parent_id, token) == 0, "a node is there twice");
        ids_[i] = add(parent_id, token, frequency, oldest);
        depths_[i] = depth;
        oldest = ids_[i];
      }
    }
    /// Not linked to its siblings yet, so no reader finds continuations.
    uint32_t add(uint32_t parent, uint32_t token, uint32_t frequency, uint32_t newer) {
      corpus_.table_.reserve(parent, token);
      const uint32_t id = corpus_.nodes_.take(corpus_.readers_);
      auto& node = corpus_.nodes_[id];
      node.token = token;
      node.parent = parent;
      node.first_child = 0;
      node.frequency = frequency;
      node.newer = newer;
      node.older = 0;
      corpus_.nodes_[newer].older = id;
      corpus_.nodes_[0].newer = id;
      corpus_.table_.add(id, parent, token);
      return id;
    }
    void order(In& in, uint64_t n) {
      std::vector<bool> linked(ids_.size());
      uint32_t last = 0, last_parent = UINT32_MAX;
      for (uint64_t i = 0; i < n; ++i) {
        const uint32_t index = in.u32();
        require(index < n, "an order of children names a node that is not there");
        if (index >= ids_.size() || ids_[index] == 0) continue;
        require(!linked[index], "an order of children names a node twice");
        linked[index] = true;
        const uint32_t id = ids_[index], parent = corpus_.nodes_[id].parent;
        if (parent != last_parent) {
          require(corpus_.nodes_[parent].first_child == 0, "children of one node are not together");
          last = 0;
        }
        if (corpus_.settings_.match == NgramMatch::prob && parent != 0)
          corpus_.link_child(id, parent);
        else
          corpus_.link_between(id, parent, last, 0);
        last = id;
        last_parent = parent;
      }
      for (size_t i = 0; i < ids_.size(); ++i)
        require(ids_[i] == 0 || linked[i], "an order of children leaves a node out");
    }

    NgramCorpus& corpus_;
    const uint32_t vocabulary_;
    const Read& read_;
    std::vector<uint32_t> ids_, depths_;
  };
};

}  // namespace turbo::draft
