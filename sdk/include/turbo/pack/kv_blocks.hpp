// Blocks of a KV pool, for arch packs: which parts they hold, where these lie, and the checks of everything that names a
// block. Packs that use it place parts alike, so that a block saved by one is of the form that another reads.
//
// A block id owns one contiguous range: [layer][K, V]. Parts whose codec's open form is final ("one form") keep their rows
// under the packed (only) id; others append into open ids.
// [load] to describe; the checks are [engine].
#pragma once

#include <turbo/pack/facts.hpp>
#include <turbo/plugin.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace turbo::pack {

/// One side (K or V) of one layer. Layers may have different codecs.
struct KvPart {
  turbo_kv_shape shape{};
  turbo_kv_layout layout{};
  uint64_t packed_offset = 0, open_offset = 0;  // inside a block of that form
  bool one_form = true;
};

/// Where something of a block lies: in the memory of open blocks or of packed (or only) ones.
struct KvPlace {
  bool open = false;
  uint64_t offset = 0, bytes = 0;
};

/// `Part` derives from KvPart; a pack adds its codec.
template <typename Part>
class KvBlocks {
 public:
  static constexpr uint32_t kMostLayers = 4096, kMostHeads = 4096, kMostHeadDim = 4096, kMostBlocks = 1u << 24;

  turbo_kv_pool_desc desc{};
  std::vector<Part> parts[2];  // by TURBO_KV_SIDE_*, then by layer
  bool any_one_form = false, any_two_form = false;
  uint32_t sinks = 0;          // most of all parts of two forms
  uint64_t block_bytes = 0, open_block_bytes = 0;

  const Part& part(uint32_t side, uint32_t layer) const { return parts[side][layer]; }
  bool one_form() const { return !any_two_form; }
  uint32_t n_blocks() const { return desc.n_blocks; }
  uint32_t n_open_blocks() const { return one_form() ? 0 : desc.n_open_blocks; }
  PoolFacts facts() const { return {desc, any_one_form, any_two_form, sinks}; }

  /// Lay out all parts. `find(side, layer)` gives a Part with its codec; `layout(part)` asks the codec for part.layout, whose
  /// shape is known. Layouts may want an alignment of up to `most_alignment`. Throws Failure.
  template <typename Find, typename Layout>
  void describe(const turbo_kv_pool_desc& pool, uint64_t most_alignment, Find&& find, Layout&& layout) {
    desc = pool;
    check_desc();
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
      for (uint32_t layer = 0; layer < desc.n_layers; ++layer) {
        Part& part = parts[side].emplace_back(find(side, layer));
        part.shape = {sizeof(turbo_kv_shape), side, layer, desc.n_layers, desc.n_kv_heads, side == TURBO_KV_SIDE_K ? desc.head_dim_k : desc.head_dim_v};
        part.layout.struct_size = sizeof part.layout;
        layout(part);
        part.one_form = part.layout.flags & TURBO_KV_OPEN_IS_PACKED;
        check_layout(part, most_alignment);
        (part.one_form ? any_one_form : any_two_form) = true;
        if (!part.one_form) sinks = std::max(sinks, part.layout.sinks);
      }
    block_bytes = place(false);
    open_block_bytes = one_form() ? 0 : place(true);
  }

  /// The greatest alignment that a part asks for.
  uint64_t alignment() const {
    uint64_t most = 64;
    for (const std::vector<Part>& side : parts)
      for (const Part& part : side) most = std::max<uint64_t>(most, part.layout.alignment);
    return most;
  }

  /// A whole block in one form, checked against `bytes`.
  KvPlace whole(int32_t id, uint32_t form, uint64_t bytes) const {
    if (form > TURBO_KV_FORM_PACKED) refuse(TURBO_INVALID_ARGUMENT, "form " + std::to_string(form) + " is neither open nor packed");
    const bool open = form == TURBO_KV_FORM_OPEN && !one_form();
    check_block(id, open ? n_open_blocks() : n_blocks(), open ? "open block" : "block");
    const uint64_t want = bytes_of(form);
    if (bytes != want) refuse(TURBO_INVALID_ARGUMENT, "a block has " + std::to_string(want) + " bytes, not " + std::to_string(bytes));
    return {open, static_cast<uint64_t>(id) * want, want};
  }
  uint64_t bytes_of(uint32_t form) const { return form == TURBO_KV_FORM_OPEN && !one_form() ? open_block_bytes : block_bytes; }

  void check_pack(int32_t open_id, int32_t block_id) const {
    if (one_form()) refuse(TURBO_INVALID_ARGUMENT, "its blocks have one form, nothing to pack");
    check_block(open_id, n_open_blocks(), "open block");
    check_block(block_id, n_blocks(), "block");
  }
  void check_move(const turbo_kv_place& src, const turbo_kv_place& dst) const {
    if (src.row >= TURBO_KV_BLOCK || dst.row >= TURBO_KV_BLOCK) refuse(TURBO_INVALID_ARGUMENT, "row past the end of a block");
    for (const turbo_kv_place* place : {&src, &dst}) {
      if (any_one_form) check_block(place->block_id, n_blocks(), "block");
      if (any_two_form) check_block(place->open_id, n_open_blocks(), "open block");
    }
  }

  [[noreturn]] static void refuse(turbo_status code, const std::string& why) { throw Failure(code, "KV pool: " + why); }

 private:
  static void check_block(int32_t id, uint32_t n, const char* what) {
    if (id < 0 || static_cast<uint32_t>(id) >= n)
      refuse(TURBO_INVALID_ARGUMENT, std::string(what) + " " + std::to_string(id) + " is not one of " + std::to_string(n));
  }

  void check_desc() const {
    if (desc.n_layers == 0 || desc.n_layers > kMostLayers || desc.n_kv_heads == 0 || desc.n_kv_heads > kMostHeads || desc.head_dim_k == 0 ||
        desc.head_dim_k > kMostHeadDim || desc.head_dim_v == 0 || desc.head_dim_v > kMostHeadDim || desc.n_blocks > kMostBlocks ||
        desc.n_open_blocks > kMostBlocks)
      refuse(TURBO_INVALID_ARGUMENT, std::to_string(desc.n_layers) + " layers, " + std::to_string(desc.n_kv_heads) + " KV heads of " +
                                         std::to_string(desc.head_dim_k) + " and " + std::to_string(desc.head_dim_v) + ", " +
                                         std::to_string(desc.n_blocks) + " blocks are out of range");
  }

  static void check_layout(const KvPart& part, uint64_t most_alignment) {
    const turbo_kv_layout& layout = part.layout;
    const uint64_t most = uint64_t{1} << 40;
    if (layout.packed_block_bytes == 0 || layout.packed_block_bytes > most || layout.open_block_bytes > most || layout.alignment == 0 ||
        (layout.alignment & (layout.alignment - 1)) || layout.alignment > most_alignment)
      refuse(TURBO_INTERNAL, "its codec announces an impossible layout");
    if (!part.one_form && layout.open_block_bytes == 0) refuse(TURBO_INTERNAL, "its codec has no open form and no pack");
  }

  // Places the [layer][K, V] parts in one block of a form; returns the bytes of the block. Sums of at most 8192 parts of
  // 2^40 bytes fit.
  uint64_t place(bool open) {
    const auto up = [](uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; };
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < desc.n_layers; ++layer)
      for (std::vector<Part>& side : parts) {
        Part& part = side[layer];
        at = up(at, std::max<uint64_t>(64, part.layout.alignment));
        (open ? part.open_offset : part.packed_offset) = at;
        at += !open ? part.layout.packed_block_bytes : part.one_form ? 0 : part.layout.open_block_bytes;
      }
    return up(at, alignment());
  }
};

}  // namespace turbo::pack
