// Launches of a step as stages of one: which of them a step kernel can take, and the mail that links them.
//
// A run of launches is taken while each is a Q1_0 matvec or attention of one codec, and reads what the one before it wrote:
// then every block that passes a stage knows the stages before the last as finished, and nothing that is written to memory
// can meet a reader of what was there. Anything else ends the run. Pure; no device is asked.
#pragma once

#include "runtime/runtime.h"

#include <turbo/kernel/gpu/mail_layout.hpp>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace turbo::arch_rdna2 {

/// What attention a step kernel is compiled with: "f16", lanes of a head, queries of a tile.
struct AttendKind {
  std::string codec;
  uint32_t lanes = 0, queries = 0;
  bool operator==(const AttendKind&) const = default;
};

struct StageRun {
  size_t first = 0, end = 0;         // launches
  std::optional<AttendKind> attend;  // none of the stages is attention
  uint32_t max_rows = 1;             // of any product
  std::vector<gpu::Stage> stages;    // addresses of mail are offsets + 1; 0: none
  uint64_t mail_bytes = 0;
};

/// Runs of at least kLeastStages, in order.
constexpr size_t kLeastStages = 4;
/// Attention over more chunks of keys has too few waves in a step kernel; measured.
constexpr uint32_t kMostStepChunks = 8;
/// `counts` as in turbo_device_table: products of other rows are not taken.
std::vector<StageRun> find_stage_runs(std::span<const hip::Enqueued> launches, const uint32_t* counts, uint32_t compute_units);

}  // namespace turbo::arch_rdna2
