#include "ops.h"

extern "C" const turbo_code_object turbo_kernels_ops[];
extern "C" const uint32_t turbo_n_kernels_ops;

namespace turbo::arch_rdna2 {
namespace {

constexpr uint32_t kTableBlocks = 8;  // the copy waits for the host's memory, not for arithmetic
constexpr uint32_t kWaves = kThreads / 32;

uint64_t blocks(uint64_t n, uint64_t per_block) { return (n + per_block - 1) / per_block; }

}  // namespace

Kernels::Kernels(const turbo_device& device, const turbo_code_object* objects, uint32_t n) : device_(device) {
  checked("", [&](turbo_error* error) { return device_.module_load(device_.ctx, objects, n, &module_, error); });
}

Kernels::~Kernels() { device_.module_unload(device_.ctx, module_); }

turbo_kernel* Kernels::find(const char* name) const {
  turbo_kernel* kernel = nullptr;
  checked("", [&](turbo_error* error) { return device_.kernel(device_.ctx, module_, name, &kernel, error); });
  return kernel;
}

void Kernels::launch_raw(turbo_kernel* kernel, const void* args, uint32_t bytes, uint64_t grid_x, uint64_t grid_y, uint64_t grid_z, uint32_t threads, bool whole) const {
  if (grid_x > INT32_MAX || grid_y > 65535 || grid_z > 65535)
    throw Failure(TURBO_RESOURCE_EXHAUSTED, "a launch of " + std::to_string(grid_x) + " x " + std::to_string(grid_y) + " x " + std::to_string(grid_z) + " blocks");
  const turbo_launch launch{sizeof(turbo_launch), static_cast<uint32_t>(grid_x), static_cast<uint32_t>(grid_y), static_cast<uint32_t>(grid_z), threads, 0, args, bytes, 0, 1, whole ? 1u : 0u};
  checked("", [&](turbo_error* error) { return device_.launch(device_.ctx, device_.stream, kernel, &launch, error); });
}

Ops::Ops(const turbo_device& device)
    : Kernels(device, turbo_kernels_ops, turbo_n_kernels_ops), norm_(find("rdna2_norm")), rope_(find("rdna2_rope")), element_(find("rdna2_element")),
      top_k_(find("rdna2_top_k")), table_(find("rdna2_table")), softmax_(find("rdna2_softmax")), merge_(find("rdna2_merge")) {}

void Ops::norm(const NormArgs& args, uint32_t max_rows) const { launch(norm_, args, args.groups == 1 ? 1 : blocks(args.groups, kWaves), max_rows); }
void Ops::rope(const RopeArgs& args, uint32_t max_rows) const { launch(rope_, args, blocks(args.n_heads, kWaves), max_rows); }
void Ops::element(const ElementArgs& args, uint32_t max_rows) const { launch(element_, args, blocks(args.width, kThreads), max_rows); }
void Ops::top_k(const TopKArgs& args, uint32_t max_rows) const { launch(top_k_, args, max_rows); }
// Kernels read the table before they wait for those ahead of them.
void Ops::table(const TableArgs& args) const { launch(table_, args, kTableBlocks, 1, 1, kThreads, true); }
void Ops::softmax(const WindowArgs& args, uint32_t max_rows) const { launch(softmax_, args, args.n_heads, args.n_chunks, max_rows, 128); }
void Ops::merge(const WindowArgs& args, uint32_t max_rows) const { launch(merge_, args, args.n_heads, max_rows, 1, 128); }

}  // namespace turbo::arch_rdna2
