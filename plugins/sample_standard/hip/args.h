// What host code and kernels of the device sampler share: argument structs, work lists and results.
//
// A call's rows become works (one row of logits, perhaps edited), views (a row as it is drawn from, or as the model gave
// it, at one temperature) and lists (the head of a view's order). Works and views of a small call travel in the arguments;
// what is more, and masks and edits, in one block that is copied at the start. Everything the host reads is written
// straight into pinned memory, so nothing has to be copied back.
#pragma once

#include <turbo/kernel/gpu/argmax.hpp>

#include <stdint.h>

namespace turbo::sample_standard::device {

constexpr uint32_t kNone = 0xffffffffu;
constexpr uint32_t kSegment = 1024;      // of the mass: as kMassSegment of passes.h; a block weighs or lists one
constexpr uint32_t kThreads = 256;
// Bins of a view: floor(32 (max - x) / min(temperature, 1)); the last takes all the rest. A list takes whole bins, so it
// ends between two values, never within a tie.
constexpr uint32_t kBins = 4096, kBinsPerUnit = 32;
constexpr uint32_t kListCapacity = 8192;
constexpr uint32_t kFewWorks = 8, kFewViews = 16;

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
/// A list is the shortest of whole bins that holds `least` entries and `share` of the mass, but of the bins from `last_bin`
/// on it takes none for the share's sake. Fewer where the row has no more, or the list no room.
struct View {
  uint32_t work, flags;
  float temperature;
  uint32_t list;               // or kNone
  uint32_t least;              // at least 1
  uint32_t last_bin;
  float share;                 // 1 or more: of no use
};
struct ViewFound {
  uint32_t n;                  // entries of the list
  uint32_t end_bin;            // it holds the bins below this one; kBins: the whole row
};

/// What there is to do. `works` and `views` are null when all of them are few.
struct Tasks {
  const Work* works;
  const View* views;
  Work few_works[kFewWorks];
  View few_views[kFewViews];
};

struct SurveyArgs {
  gpu::LogitRows logits;       // the grid is works * splits
  Tasks tasks;
  const Edit* edits;
  const float* biases;
  const uint32_t* masks;
  float* edited;               // [edited rows][edited_stride]
  uint64_t edited_stride;
  gpu::ArgmaxRow* scratch;     // [works][2] zeros
  WorkFound *found, *host_found;  // the same, for the views' launches and for the host
  uint32_t* cleared;           // bins and fill counts of the views, for these launches
  uint64_t n_cleared;
};

/// One launch weighs, the next lists.
struct ViewArgs {
  const float* logits;
  uint64_t stride;
  uint32_t vocab, blocks;      // segments of a row: blocks of a view
  Tasks tasks;
  const WorkFound* work_found;
  const float* edited;
  uint64_t edited_stride;
  uint32_t* bins;              // [views][kBins]
  uint32_t* filled;            // [views]
  // Host memory.
  ViewFound* found;
  double* sums;                // [views][sums_stride], of segments
  uint64_t sums_stride;
  uint64_t* keys;              // [lists][kListCapacity] complements of argmax keys, in any order
  float* model_logits;         // [lists][kListCapacity] of the same tokens; of edited views
};

}  // namespace turbo::sample_standard::device
