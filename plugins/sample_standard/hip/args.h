// What host code and kernels of the device sampler share: argument structs, work lists and results.
//
// A call's rows become works (one row of logits, perhaps edited), views (a row as it is drawn from, or as the model gave
// it, at one temperature) and lists (the head of a view's order). Everything a kernel reads is written by the host into
// one block that is copied at the start; everything the host reads comes back in one block.
#pragma once

#include <turbo/kernel/gpu/argmax.hpp>

#include <stdint.h>

namespace turbo::sample_standard::device {

constexpr uint32_t kNone = 0xffffffffu;
constexpr uint32_t kSegment = 1024;      // of the mass: as kMassSegment of passes.h
constexpr uint32_t kWeighBlock = 16 * kSegment;
constexpr uint32_t kThreads = 256;
// Bins of a view: floor(32 (max - x) / min(temperature, 1)); the last takes all the rest. A list takes whole bins, so it
// ends between two values, never within a tie.
constexpr uint32_t kBins = 4096, kBinsPerUnit = 32;
constexpr uint32_t kListCapacity = 2048;

struct GreedyFound {
  uint64_t key;  // of argmax.hpp
  uint32_t nan;
  uint32_t reserved;
};
struct GreedyArgs {
  gpu::LogitRows logits;
  gpu::ArgmaxRow* scratch;  // [rows] zeros
  GreedyFound* found;       // [rows], host memory
};

/// All edits of one token, in rising order of id. The order of the arithmetic is the CPU sampler's.
struct Edit {
  uint32_t id;
  uint32_t first_bias, n_bias;
  uint32_t seen;  // kSeen when penalties count it, plus how often it was generated
};
constexpr uint32_t kSeen = 0x80000000u;
constexpr float kBan = -100.0f;

struct Work {
  uint32_t row;                // of the logits
  uint32_t edited;             // row of the edited values, or kNone
  uint32_t first_edit, n_edits;
  uint32_t first_word;         // of the mask, or kNone
  float repetition, frequency, presence;
};
struct WorkFound {
  uint64_t key, edited_key;    // of argmax.hpp; edited_key 0 without edits
  float model_logit;           // of edited_key's token
  uint32_t nan;
};

constexpr uint32_t kViewEdited = 1, kViewMass = 2;
struct View {
  uint32_t work, flags;
  float temperature;
  uint32_t list;               // or kNone
};
struct ViewFound {
  double mass;
  uint32_t n;                  // entries of the list
  uint32_t end_bin;            // it holds the bins below this one; kBins: the whole row
  uint32_t filled;
  uint32_t reserved;
};

struct SurveyArgs {
  gpu::LogitRows logits;       // the grid is works * splits
  const Work* works;
  const Edit* edits;
  const float* biases;
  const uint32_t* masks;
  float* edited;               // [edited rows][edited_stride]
  uint64_t edited_stride;
  gpu::ArgmaxRow* scratch;     // [works][2] zeros
  WorkFound* found;
};

/// One launch weighs, the next lists.
struct ViewArgs {
  const float* logits;
  uint64_t stride;
  uint32_t vocab, blocks;      // blocks of a view, kWeighBlock elements each
  const Work* works;
  const WorkFound* work_found;
  const float* edited;
  uint64_t edited_stride;
  const View* views;
  ViewFound* found;
  double* sums;                // [views][sums_stride]
  uint64_t sums_stride;
  uint32_t* bins;              // [views][kBins] zeros
  uint32_t* arrivals;          // [views] zeros
  uint64_t* keys;              // [lists][kListCapacity] complements of argmax keys, in any order
  float* model_logits;         // [lists][kListCapacity] of the same tokens
};

}  // namespace turbo::sample_standard::device
