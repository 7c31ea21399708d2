#include "step_table.h"

#include <algorithm>

namespace turbo::arch_rdna2 {
namespace {

constexpr uint64_t kHeadBytes = 256;  // head or counts, before the arrays

}  // namespace

StepMemory::StepMemory(const turbo_step_caps& caps, hip::Device& device) {
  pack::StepArrays::check_caps(caps);
  const uint64_t bytes = kHeadBytes + pack::StepArrays::words(caps) * sizeof(int32_t);
  pinned = hip::DeviceMemory(device, TURBO_MEMORY_PINNED, bytes, "step table");
  on_device = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, bytes, "step table");
  masks.resize(uint64_t{caps.logit_rows} * caps.mask_words);
}

StepTable::StepTable(const turbo_step_caps& caps, hip::Device& device)
    : StepMemory(caps, device), StepArrays(caps, pinned.get<int32_t>() + kHeadBytes / 4, masks.data()) {
  int32_t* const source = pinned.get<int32_t>() + kHeadBytes / 4;
  int32_t* const target = on_device.get<int32_t>() + kHeadBytes / 4;
  std::fill_n(pinned.get<uint32_t>(), kHeadWords, 0u);
  args_ = {pinned.get<uint32_t>(), source, on_device.get<uint32_t>(), target, caps.rows, caps.sequences, caps.logit_rows, caps.blocks_per_sequence,
           caps.path, 0};
  const auto there = [&](const int32_t* array) { return target + (array - source); };
  table_ = {on_device.get<uint32_t>(), there(token), there(position), there(row_seq), there(slot), there(path_length), there(path),
            there(committed), there(block_table), there(open_table), there(logit_row), path_capacity, block_capacity};
}

void StepTable::set_head() {
  int32_t longest = 0, last = -1;
  for (uint32_t row = 0; row < n_rows; ++row) {
    last = std::max({last, position[row], slot[row]});
    longest = std::max(longest, path_length[row]);
    const int32_t* const slots = path + uint64_t{row} * path_capacity;
    for (int32_t i = 0; i < std::min<int64_t>(path_length[row], path_capacity); ++i) last = std::max(last, slots[i]);
  }
  uint32_t* const head = pinned.get<uint32_t>();
  head[0] = n_rows;
  head[1] = n_seqs;
  head[2] = n_logit_rows;
  head[3] = open_uncommitted ? 1 : 0;
  // Values that the plan's check does not read may be anything.
  head[4] = static_cast<uint32_t>(std::clamp<int64_t>(longest, 0, path_capacity));
  head[5] = static_cast<uint32_t>(std::clamp<int64_t>(int64_t{last} / TURBO_KV_BLOCK + 1, 0, block_capacity));
}

}  // namespace turbo::arch_rdna2
