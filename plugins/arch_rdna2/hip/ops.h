// The pack's own kernels, enqueued on its stream. [load] to create; calls are [engine] and may be captured in a graph.
#pragma once

#include "args.h"
#include "runtime/device.h"

#include <string>

namespace turbo::arch_rdna2 {

/// Run a call of the ABI; what it refuses becomes a Failure that begins with `what`.
template <typename Call>
void checked(const std::string& what, Call&& call) {
  turbo_error error{};
  error.struct_size = sizeof error;
  const turbo_status status = call(&error);
  if (status != TURBO_OK) throw Failure(status, what.empty() ? error.message : what + ": " + error.message, error.hint);
}

constexpr uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

/// A module of this library, and launches of its kernels.
class Kernels {
 public:
  Kernels(const turbo_device& device, const turbo_code_object* objects, uint32_t n);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  const turbo_device& device() const { return device_; }

 protected:
  turbo_kernel* find(const char* name) const;
  template <typename Args>
  void launch(turbo_kernel* kernel, const Args& args, uint64_t grid_x, uint64_t grid_y = 1, uint64_t grid_z = 1, uint32_t threads = kThreads, bool whole = false) const {
    launch_raw(kernel, &args, sizeof args, grid_x, grid_y, grid_z, threads, whole);
  }

 private:
  void launch_raw(turbo_kernel* kernel, const void* args, uint32_t bytes, uint64_t grid_x, uint64_t grid_y, uint64_t grid_z, uint32_t threads, bool whole) const;

  const turbo_device& device_;
  turbo_module* module_ = nullptr;
};

class Ops : public Kernels {
 public:
  explicit Ops(const turbo_device& device);

  void norm(const NormArgs& args, uint32_t max_rows) const;
  void rope(const RopeArgs& args, uint32_t max_rows) const;
  void element(const ElementArgs& args, uint32_t max_rows) const;
  void top_k(const TopKArgs& args, uint32_t max_rows) const;
  void table(const TableArgs& args) const;
  void softmax(const WindowArgs& args, uint32_t max_rows) const;
  void merge(const WindowArgs& args, uint32_t max_rows) const;

 private:
  turbo_kernel *norm_, *rope_, *element_, *top_k_, *table_, *softmax_, *merge_;
};

}  // namespace turbo::arch_rdna2
