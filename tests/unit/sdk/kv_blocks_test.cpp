// Where parts of a KV block lie, and what is refused.
#include <gtest/gtest.h>
#include <turbo/pack/kv_blocks.hpp>

#include <functional>

namespace turbo::pack {
namespace {

struct Part : KvPart {
  int codec = 0;
};
using Blocks = KvBlocks<Part>;

turbo_kv_pool_desc desc_of(uint32_t layers) {
  turbo_kv_pool_desc desc{};
  desc.struct_size = sizeof desc;
  desc.n_layers = layers;
  desc.n_kv_heads = 2;
  desc.head_dim_k = 64;
  desc.head_dim_v = 32;
  desc.n_blocks = 5;
  desc.n_open_blocks = 3;
  return desc;
}

turbo_kv_layout two_forms(uint64_t packed, uint64_t open, uint32_t alignment, uint32_t sinks = 0) {
  turbo_kv_layout layout{};
  layout.packed_block_bytes = packed;
  layout.open_block_bytes = open;
  layout.alignment = alignment;
  layout.sinks = sinks;
  return layout;
}
turbo_kv_layout one_form(uint64_t bytes, uint32_t alignment) {
  turbo_kv_layout layout = two_forms(bytes, 0, alignment);
  layout.flags = TURBO_KV_OPEN_IS_PACKED;
  return layout;
}

Blocks blocks_of(uint32_t layers, const std::function<turbo_kv_layout(uint32_t side, uint32_t layer)>& layout) {
  Blocks blocks;
  blocks.describe(
      desc_of(layers), 256,
      [](uint32_t side, uint32_t layer) {
        Part part;
        part.codec = static_cast<int>(10 * layer + side);
        return part;
      },
      [&](Part& part) {
        part.layout = layout(part.shape.side, part.shape.layer);
        EXPECT_EQ(part.shape.head_dim, part.shape.side == TURBO_KV_SIDE_K ? 64u : 32u);
        EXPECT_EQ(part.shape.n_kv_heads, 2u);
        EXPECT_EQ(part.codec, static_cast<int>(10 * part.shape.layer + part.shape.side));
      });
  return blocks;
}

std::string refusal(const std::function<void()>& call, turbo_status code = TURBO_INVALID_ARGUMENT) {
  try {
    call();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code, code);
    return failure.message;
  }
  return "nothing was refused";
}

}  // namespace

TEST(KvBlocks, PartsLieLayerByLayerAtTheirAlignment) {
  // Layer 0: K of two forms, V of one; layer 1 the other way round.
  const Blocks blocks = blocks_of(2, [](uint32_t side, uint32_t layer) {
    if (layer == 0) return side == TURBO_KV_SIDE_K ? two_forms(1000, 4000, 64, 4) : one_form(500, 16);
    return side == TURBO_KV_SIDE_K ? one_form(70, 256) : two_forms(300, 640, 128, 9);
  });
  EXPECT_EQ(blocks.part(TURBO_KV_SIDE_K, 0).packed_offset, 0u);
  EXPECT_EQ(blocks.part(TURBO_KV_SIDE_V, 0).packed_offset, 1024u);
  EXPECT_EQ(blocks.part(TURBO_KV_SIDE_K, 1).packed_offset, 1536u) << "the next multiple of 256 behind 1524";
  EXPECT_EQ(blocks.part(TURBO_KV_SIDE_V, 1).packed_offset, 1664u) << "of 128 behind 1606";
  EXPECT_EQ(blocks.block_bytes, 2048u) << "a multiple of the greatest alignment";
  EXPECT_EQ(blocks.part(TURBO_KV_SIDE_K, 0).open_offset, 0u);
  EXPECT_EQ(blocks.part(TURBO_KV_SIDE_V, 1).open_offset, 4096u) << "parts of one form take no room there";
  EXPECT_EQ(blocks.open_block_bytes, 4864u) << "4736, rounded up to 256";
  EXPECT_EQ(blocks.sinks, 9u);
  EXPECT_TRUE(blocks.any_one_form && blocks.any_two_form && !blocks.one_form());
  EXPECT_EQ(blocks.n_open_blocks(), 3u);
  EXPECT_EQ(blocks.alignment(), 256u);
  const KvPlace open = blocks.whole(2, TURBO_KV_FORM_OPEN, 4864), packed = blocks.whole(4, TURBO_KV_FORM_PACKED, 2048);
  EXPECT_TRUE(open.open && open.offset == 2 * 4864);
  EXPECT_TRUE(!packed.open && packed.offset == 4 * 2048);
}

TEST(KvBlocks, WithoutASecondFormThereAreNoOpenBlocks) {
  const Blocks blocks = blocks_of(3, [](uint32_t, uint32_t) { return one_form(64, 64); });
  EXPECT_EQ(blocks.block_bytes, 6 * 64u);
  EXPECT_EQ(blocks.open_block_bytes, 0u);
  EXPECT_EQ(blocks.n_open_blocks(), 0u);
  EXPECT_EQ(blocks.bytes_of(TURBO_KV_FORM_OPEN), 6 * 64u) << "the only form stands for both";
  EXPECT_FALSE(blocks.whole(0, TURBO_KV_FORM_OPEN, 6 * 64).open);
  EXPECT_EQ(refusal([&] { blocks.check_pack(0, 0); }), "KV pool: its blocks have one form, nothing to pack");
  turbo_kv_place src{sizeof src, 63, 4, -1}, dst{sizeof dst, 0, 0, 77};
  blocks.check_move(src, dst);
  src.block_id = 5;
  EXPECT_EQ(refusal([&] { blocks.check_move(src, dst); }), "KV pool: block 5 is not one of 5");
}

TEST(KvBlocks, BadNamesAreRefused) {
  const Blocks blocks = blocks_of(1, [](uint32_t, uint32_t) { return two_forms(64, 64, 64); });
  EXPECT_EQ(refusal([&] { blocks.check_pack(3, 0); }), "KV pool: open block 3 is not one of 3");
  EXPECT_EQ(refusal([&] { blocks.check_pack(0, -1); }), "KV pool: block -1 is not one of 5");
  EXPECT_EQ(refusal([&] { blocks.whole(0, 2, 128); }), "KV pool: form 2 is neither open nor packed");
  EXPECT_EQ(refusal([&] { blocks.whole(0, TURBO_KV_FORM_PACKED, 64); }), "KV pool: a block has 128 bytes, not 64");
  const turbo_kv_place src{sizeof src, 64, 0, 0}, dst{sizeof dst, 0, 0, 0};
  EXPECT_EQ(refusal([&] { blocks.check_move(src, dst); }), "KV pool: row past the end of a block");
  EXPECT_EQ(refusal([&] { blocks.check_move(dst, src); }), "KV pool: row past the end of a block");
}

TEST(KvBlocks, ImpossiblePoolsAndLayoutsAreRefused) {
  const auto layers = [](uint32_t n) { return [n] { blocks_of(n, [](uint32_t, uint32_t) { return one_form(64, 64); }); }; };
  EXPECT_NE(refusal(layers(0)).find("out of range"), std::string::npos);
  EXPECT_NE(refusal(layers(4097)).find("out of range"), std::string::npos);
  for (const turbo_kv_layout& bad : {one_form(0, 64), one_form(64, 0), one_form(64, 48), one_form(64, 512), one_form((uint64_t{1} << 40) + 1, 64), two_forms(64, 0, 64),
                                     two_forms(64, (uint64_t{1} << 40) + 1, 64)})
    EXPECT_NE(refusal([&] { blocks_of(1, [&](uint32_t, uint32_t) { return bad; }); }, TURBO_INTERNAL), "nothing was refused");
  const Blocks most = blocks_of(4096, [](uint32_t, uint32_t) { return two_forms(uint64_t{1} << 40, uint64_t{1} << 40, 256); });
  EXPECT_EQ(most.block_bytes, uint64_t{1} << 53) << "the largest that can be said fits";
}

}  // namespace turbo::pack
