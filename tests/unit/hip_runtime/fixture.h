// A fiber device with the tests' kernels, and a host that keeps account.
#pragma once

#include <gtest/gtest.h>
#include <turbo/fake/host.hpp>

#include <cstdlib>
#include <memory>
#include <string>

#include "device.h"
#include "kernel_args.h"
#include "runtime_fiber.h"

extern "C" {
extern const turbo_code_object turbo_kernels_kernels[];
extern const uint32_t turbo_n_kernels_kernels;
extern const turbo_code_object turbo_kernels_device_check[];
extern const uint32_t turbo_n_kernels_device_check;
}

namespace turbo::hip {

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~ScopedEnv() { ::unsetenv(name_); }
  ScopedEnv(const ScopedEnv&) = delete;

 private:
  const char* name_;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline turbo_error fresh_error() {
  turbo_error error{};
  error.struct_size = sizeof error;
  return error;
}

/// The message of the Failure that `body` throws; fails the test when it throws none, or another code.
template <typename Body>
std::string failure(turbo_status code, Body&& body) {
  try {
    body();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code, code) << failure.message;
    return failure.message;
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Opens its device in the constructor, so environment variables come first.
struct FiberBench {
  FiberBench() {
    auto opened = make_fiber_runtime();
    opened->open(0);
    const DeviceFacts facts = opened->facts(0);
    device = std::make_unique<Device>(Host(host.raw()), std::move(opened), facts);
    module = device->load(turbo_kernels_kernels, turbo_n_kernels_kernels);
  }
  Runtime& runtime() { return device->runtime(); }
  turbo_stream* stream() { return device->stream(); }
  turbo_kernel* kernel(const char* name) { return runtime().kernel(module, name); }
  template <typename Args>
  void launch(const char* name, const Args& args, uint32_t blocks = 1, uint32_t threads = 32, uint32_t shared = 0, bool resident = false) {
    runtime().launch(stream(), kernel(name), {sizeof(turbo_launch), blocks, 1, 1, threads, shared, &args, sizeof args, resident ? 1u : 0u});
  }
  DeviceMemory on_device(uint64_t bytes, const char* tag = "test") { return {*device, TURBO_MEMORY_DEVICE, bytes, tag}; }
  DeviceMemory pinned(uint64_t bytes, const char* tag = "test") { return {*device, TURBO_MEMORY_PINNED, bytes, tag}; }

  fake::Host host;
  std::unique_ptr<Device> device;
  turbo_module* module = nullptr;
};

}  // namespace turbo::hip
