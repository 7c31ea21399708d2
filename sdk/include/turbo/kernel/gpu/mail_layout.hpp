// Mail between blocks of one launch: values that carry the number of the step they belong to, so that whoever reads them
// knows that they have come. For host code and kernels; includes no kernel language.
//
// A number of a step, the tag, is 1 .. kLastTag, 16 bits. Memory of mail is zero before the first step, and again before
// numbers begin anew. No two stages of a step share mail, so nobody overwrites what somebody may still read.
//   floats  of a row: {float, tag} of 8 bytes each, written and read as one
//   bytes   of a row: tiles of 32 columns, 64 bytes each, in four lanes of 16 bytes {a, c_low | tag << 16, b, c_high | tag << 16};
//           each 8 bytes are written and read as one. Words 3 l .. 3 l + 2 of lane l are a, b, c of the words
//           0 .. 7 codes, 8 scale, 9 sum of the codes (float), 10 squares, 11 nothing; see q8.hpp
#pragma once

#include <turbo/kernel/gpu/kv_side.hpp>
#include <turbo/kernel/gpu/q1_layout.hpp>

namespace turbo::gpu {

constexpr uint32_t kMailTile = 64, kMailFloat = 8, kMailLanes = 4;
constexpr uint32_t kMailSquares = 3 * 16 + 8;  // of a tile: where its squares lie, with a tag
/// Bits of the 8 bytes of a float, and of a tile's squares, from which on the tag lies.
constexpr uint32_t kFloatTag = 32, kSquaresTag = 48;
constexpr uint32_t kLastTag = 0xffff;

/// Boxes of a stage, one of each row behind the other.
struct StageMail {
  uint8_t* in;                        // bytes of the input; null: it lies in memory
  uint8_t* out;                       // bytes of the output; null: nobody waits for them
  uint8_t* floats[q1::kMatrices];     // product: outputs of each matrix; attention: q, k, v; null as above
  uint32_t in_stride, out_stride;     // bytes
  uint32_t float_stride[q1::kMatrices];
};

enum StageKind : uint32_t { stage_product, stage_attention };

/// A stage: what a launch of its own would do, with mail in place of what other stages write and read.
struct alignas(16) Stage {
  uint32_t kind;
  uint32_t teams, passes;  // product: of a block; times R rows
  uint32_t logits;         // product: its rows are those that give logits
  q1::MatvecShape shape;   // product
  uint32_t grid[3];        // attention: tiles
  uint32_t keeps_floats, keeps_bytes;  // 1: these outputs are written to memory as well
  StageMail mail;
  union {
    q1::Product product;
    AttendArgs attend;
  };
};
static_assert(sizeof(Stage) % 16 == 0 && sizeof(Stage) <= 1024);

/// Trials of tests: delays, and a block that stops.
struct StepTrial {
  uint32_t delays;                  // seed; 0: none
  uint32_t stop_block, stop_stage;  // 1 more than the number; 0: none
  uint32_t stop_tag;                // in steps from this one on
};

/// Moments of a stage in a block, by the clock of its compute unit: begun, input there, first outputs summed, ended.
constexpr uint32_t kStepMoments = 4;

struct StepArgs {
  const Stage* stages;
  const uint32_t* counts; // of the step table; behind its four the tag of this step
  uint32_t* stopped;      // 0; 1: a block waited in vain, and nothing that was written counts
  uint32_t* report;       // the same for the host, in pinned memory
  uint64_t* moments;      // [stage][block][kStepMoments], or null
  uint32_t n_stages;
  uint32_t patience;      // looks at one box before it is in vain
  StepTrial trial;
};

constexpr uint32_t kStepThreads = 512, kTagWord = 4;

}  // namespace turbo::gpu
