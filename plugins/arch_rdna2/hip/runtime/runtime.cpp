#include "runtime.h"

#include <cstdlib>

namespace turbo::hip {
namespace {

constexpr uint32_t kMaxArgumentBytes = 4000;

// HIP and CUDA number alike what counts here. After these the device's state is gone and stays so.
bool means_lost(int code) {
  switch (code) {
    case 214:  // ECC not correctable
    case 220:  // NVLink not correctable
    case 226:  // contained error
    case 700:  // illegal address
    case 702:  // launch timed out
    case 709:  // context destroyed
    case 710:  // device assert
    case 714: case 715: case 716: case 717: case 718:  // stack, instruction, alignment, address space, program counter
    case 719:  // launch failure
      return true;
    default:
      return false;
  }
}

turbo_status status_of(int code) {
  switch (code) {
    case 2: case 701: return TURBO_RESOURCE_EXHAUSTED;
    case 98: case 100: case 101: case 200: case 209: case 222: case 801: return TURBO_UNSUPPORTED;
    case 500: return TURBO_NOT_FOUND;
    default: return means_lost(code) ? TURBO_DEVICE_LOST : TURBO_INTERNAL;
  }
}

std::string about(const turbo_kernel& kernel, const turbo_launch& launch) {
  return "kernel " + kernel.name + " (" + std::to_string(launch.grid_x) + "x" + std::to_string(launch.grid_y) + "x" +
         std::to_string(launch.grid_z) + " blocks of " + std::to_string(launch.threads) + " threads)";
}

}  // namespace

Runtime::Runtime() {
  const char* value = std::getenv("TURBO_HIP_SYNC");
  sync_each_ = value && std::string_view(value) == "1";
}

void Runtime::fail(turbo_status status, const std::string& message, const std::string& hint) {
  if (status == TURBO_DEVICE_LOST && lost_.empty()) lost_ = message;
  throw Failure(status, message, hint);
}

void Runtime::check(int code, const char* call, const std::string& about) {
  if (code == 0) return;
  const turbo_status status = status_of(code);
  std::string hint;
  if (status == TURBO_DEVICE_LOST)
    hint = sync_each_ ? "restart turbo; the kernel named is the one that failed"
                      : "restart turbo; TURBO_HIP_SYNC=1 in the environment names the kernel that failed";
  else if (code == 2)
    hint = "close other programs that use the device, or use a shorter context or a smaller model";
  fail(status, std::string(call) + ": " + (about.empty() ? "" : about + ": ") + error_text(code), hint);
}

void Runtime::alive() const {
  if (!lost_.empty()) throw Failure(TURBO_DEVICE_LOST, "the device was lost: " + lost_, "restart turbo");
}

void Runtime::launch(turbo_stream* stream, turbo_kernel* kernel, const turbo_launch& launch) {
  if (launch.grid_x == 0 || launch.grid_y == 0 || launch.grid_z == 0) return;
  alive();
  const auto refuse = [&](const std::string& why) { fail(TURBO_INVALID_ARGUMENT, "launch: " + about(*kernel, launch) + ": " + why); };
  if (launch.threads == 0 || launch.threads % 32 != 0 || launch.threads > kernel->max_threads)
    refuse("a block has a multiple of 32 threads, and at most " + std::to_string(kernel->max_threads));
  if (launch.grid_x > 0x7fffffffu || launch.grid_y > 65535 || launch.grid_z > 65535) refuse("the grid is too large");
  if (uint64_t{launch.shared_bytes} + kernel->shared_bytes > device_.max_shared_bytes)
    refuse(std::to_string(launch.shared_bytes) + " + " + std::to_string(kernel->shared_bytes) + " bytes of shared memory; the device has " +
           std::to_string(device_.max_shared_bytes));
  if (!launch.arguments || launch.argument_bytes == 0 || launch.argument_bytes > kMaxArgumentBytes)
    refuse("a struct of 1 to " + std::to_string(kMaxArgumentBytes) + " bytes is expected");
  if (kernel->argument_bytes != 0 && kernel->argument_bytes != launch.argument_bytes)
    refuse("its struct has " + std::to_string(kernel->argument_bytes) + " bytes, but " + std::to_string(launch.argument_bytes) + " were given");
  if (launch.resident) {
    const uint64_t blocks = uint64_t{launch.grid_x} * launch.grid_y * launch.grid_z;
    const uint32_t room = resident_blocks(kernel, launch.threads, launch.shared_bytes);
    if (blocks > room) refuse("the device holds " + std::to_string(room) + " of them at once, and all of them must run together");
  }
  if (list_) {
    const auto* const bytes = static_cast<const uint8_t*>(launch.arguments);
    list_->push_back({kernel, launch, {bytes, bytes + launch.argument_bytes}});
    return;
  }
  stream->busy = true;
  do_launch(stream, kernel, launch);
  if (!sync_each_ || capturing()) return;
  try {
    sync(stream);
  } catch (const Failure& failure) {
    fail(failure.code, about(*kernel, launch) + ": " + failure.message, failure.hint);
  }
}

void Runtime::refuse_to_list(const char* what) {
  if (!list_) return;
  unlisted_ = true;
  throw Failure(TURBO_UNSUPPORTED, std::string(what) + ": only launches can be listed");
}

void Runtime::begin_capture(turbo_stream* stream) {
  alive();
  if (capturing_) fail(TURBO_INVALID_ARGUMENT, "capture: another one has not ended");
  do_begin_capture(stream);
  capturing_ = stream;
}

Runtime::Graph* Runtime::end_capture() {
  if (!capturing_) fail(TURBO_INVALID_ARGUMENT, "capture: none has begun");
  return do_end_capture(std::exchange(capturing_, nullptr));
}

void Runtime::drop_capture() noexcept {
  if (!capturing_) return;
  try {
    destroy_graph(end_capture());
  } catch (const std::exception&) {
    // What could not be recorded cannot be turned into a graph either; the capture has ended all the same.
  }
}

void Runtime::launch_graph(turbo_stream* stream, Graph* graph) {
  alive();
  if (capturing_) fail(TURBO_INVALID_ARGUMENT, "graph: launched while another one is recorded");
  stream->busy = true;
  do_launch_graph(stream, graph);
  if (sync_each_) sync(stream);
}

}  // namespace turbo::hip
