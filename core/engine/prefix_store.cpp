// Prefixes saved to files and put back. The file is read and written on the caller's thread; the engine thread only
// copies one block between two steps, so running streams hardly notice.
#include <algorithm>
#include <cstring>

#include "engine/impl.h"
#include "kv/prefix_file.h"

namespace turbo::engine {
namespace {

Status gone() { return Status(Code::cancelled, "the engine is shutting down"); }

// Blocks held for a file between two visits of the engine thread. Given back when the holder goes.
class HeldPrefix {
 public:
  HeldPrefix(Engine::Impl& engine, std::string salt) : engine_(engine) {
    alive_ = engine_.ask([&] {
      ++engine_.n_prefix_files;
      engine_.parts.cache->share(blocks_, salt);
    });
  }
  ~HeldPrefix() {
    if (!alive_) return;
    engine_.ask([&] {
      engine_.parts.cache->release(blocks_);
      --engine_.n_prefix_files;
      engine_.idle_checked = false;
    });
  }
  HeldPrefix(const HeldPrefix&) = delete;
  HeldPrefix& operator=(const HeldPrefix&) = delete;

  /// Run with the cache and the blocks, on the engine thread.
  template <typename F>
  Status with(F&& use) {
    Status status = gone();
    if (alive_) alive_ = engine_.ask([&] { status = use(*engine_.parts.cache, blocks_); });
    return alive_ ? status : gone();
  }

 private:
  Engine::Impl& engine_;
  kv::SequenceBlocks blocks_;
  bool alive_ = false;
};

}  // namespace

Result<uint32_t> Engine::flush_prefix_cache() {
  uint32_t n = 0;
  if (!impl_->ask([&] {
        n = impl_->parts.cache->flush();
        if (impl_->parts.host_program) impl_->parts.host_program->flush();
      })) return gone();
  return n;
}

Result<kv::PrefixHeader> Engine::Impl::prefix_header() const {
  kv::PrefixHeader header;
  header.block_bytes = parts.cache->block_bytes();
  header.open_block_bytes = parts.cache->open_block_bytes();
  header.n_open_blocks = parts.cache->n_sink_blocks();
  std::string fingerprint;
  if (parts.cache_fingerprint) {
    TURBO_ASSIGN(fingerprint, parts.cache_fingerprint());
  }
  std::memcpy(header.fingerprint, fingerprint.data(), std::min(fingerprint.size(), sizeof header.fingerprint));
  return header;
}

Result<uint32_t> Engine::save_prefix(std::span<const int32_t> tokens, const std::string& salt, const std::filesystem::path& path) {
  HeldPrefix held(*impl_, "plain:" + salt);
  uint32_t n_blocks = 0;
  TURBO_RETURN_IF_ERROR(held.with([&](kv::KvCache& cache, kv::SequenceBlocks& blocks) {
    n_blocks = cache.adopt(blocks, tokens, static_cast<uint32_t>(tokens.size())) / kv::kBlock;
    return Status::ok();
  }));
  if (n_blocks == 0)
    return Status(Code::not_found, "nothing of this prompt is in the prefix cache", "run it first; prefixes shorter than 64 tokens are not kept");
  TURBO_ASSIGN(kv::PrefixHeader header, impl_->prefix_header());
  header.n_blocks = n_blocks;
  header.n_open_blocks = std::min(header.n_open_blocks, n_blocks);
  TURBO_ASSIGN(kv::PrefixWriter writer, kv::PrefixWriter::create(path, header, tokens.first(size_t{n_blocks} * kv::kBlock)));
  std::vector<std::byte> bytes;
  for (uint32_t i = 0; i < n_blocks; ++i) {
    TURBO_RETURN_IF_ERROR(held.with([&](kv::KvCache& cache, kv::SequenceBlocks& blocks) {
      bytes.resize(cache.bytes_of(i));
      return cache.read_block(blocks.packed[i], blocks.open[i], bytes);
    }));
    TURBO_RETURN_IF_ERROR(writer.add_block(bytes));
  }
  TURBO_RETURN_IF_ERROR(writer.commit());
  return n_blocks * kv::kBlock;
}

Result<uint32_t> Engine::restore_prefix(const std::string& salt, const std::filesystem::path& path) {
  TURBO_ASSIGN(const kv::PrefixHeader expected, impl_->prefix_header());
  TURBO_ASSIGN(kv::PrefixReader reader, kv::PrefixReader::open(path, expected, impl_->parts.cache->n_blocks()));
  const std::span<const int32_t> tokens = reader.tokens();
  for (const int32_t token : tokens)
    if (token < 0 || static_cast<uint32_t>(token) >= impl_->parts.config->vocab_size)
      return error(Code::corrupt_input, "{}: token {} is outside the vocabulary", path.string(), token);
  // All digests first, so that a damaged file puts nothing into the cache.
  for (uint32_t i = 0; i < reader.header().n_blocks; ++i) TURBO_RETURN_IF_ERROR(reader.next_block().status());
  TURBO_ASSIGN(kv::PrefixReader again, kv::PrefixReader::open(path, expected, impl_->parts.cache->n_blocks()));
  HeldPrefix held(*impl_, "plain:" + salt);
  for (uint32_t i = 0; i < again.header().n_blocks; ++i) {
    TURBO_ASSIGN(const std::vector<std::byte> bytes, again.next_block());
    const auto block_tokens = std::span<const int32_t>(again.tokens()).subspan(size_t{i} * kv::kBlock).first<kv::kBlock>();
    TURBO_RETURN_IF_ERROR(held.with([&](kv::KvCache& cache, kv::SequenceBlocks& blocks) {
      // What is there already needs no copy.
      const uint32_t end = (i + 1) * kv::kBlock;
      if (cache.adopt(blocks, std::span<const int32_t>(again.tokens()).first(end), end) >= end) return Status::ok();
      return cache.restore_block(blocks, block_tokens, bytes);
    }));
  }
  return static_cast<uint32_t>(again.tokens().size());
}

}  // namespace turbo::engine
