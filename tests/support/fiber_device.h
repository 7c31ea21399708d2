// A turbo_device over the fiber platform, and a hip-tier weight format of a built library attached to it. Device memory is
// the test's own, so a sanitizer sees every address that is not its. For tests only; one thread.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <turbo/abi/draft/device.h>
#include <turbo/abi/plugin.h>
#include <turbo/kernel/gpu/fiber.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "weight_format_host.h"

namespace turbo::testing {

class FiberDevice {
 public:
  struct Launched {
    std::string kernel;
    turbo_launch launch;
  };

  explicit FiberDevice(uint32_t compute_units = 4, uint32_t max_shared_bytes = 64 * 1024) {
    table_.struct_size = sizeof table_;
    table_.ctx = this;
    table_.isa = "fiber";
    table_.compute_units = compute_units;
    table_.max_shared_bytes = max_shared_bytes;
    table_.module_load = [](void* ctx, const turbo_code_object* objects, uint32_t n, turbo_module** module, turbo_error* error) {
      for (uint32_t i = 0; i < n; ++i)
        if (std::strcmp(objects[i].isa, "fiber") == 0) {
          ++static_cast<FiberDevice*>(ctx)->modules;
          *module = reinterpret_cast<turbo_module*>(const_cast<gpu::fiber::Kernel*>(*static_cast<const gpu::fiber::Kernel* const*>(objects[i].data)));
          return TURBO_OK;
        }
      return fail(error, "no object for fiber");
    };
    table_.module_unload = [](void* ctx, turbo_module*) { --static_cast<FiberDevice*>(ctx)->modules; };
    table_.kernel = [](void*, turbo_module* module, const char* name, turbo_kernel** kernel, turbo_error* error) {
      const gpu::fiber::Kernel* found = gpu::fiber::Kernel::find(reinterpret_cast<const gpu::fiber::Kernel*>(module), name);
      *kernel = reinterpret_cast<turbo_kernel*>(const_cast<gpu::fiber::Kernel*>(found));
      return found ? TURBO_OK : fail(error, name);
    };
    table_.launch = [](void* ctx, turbo_stream*, turbo_kernel* kernel, const turbo_launch* launch, turbo_error* error) {
      auto* const self = static_cast<FiberDevice*>(ctx);
      const auto* const k = reinterpret_cast<const gpu::fiber::Kernel*>(kernel);
      if (launch->argument_bytes != k->argument_bytes) return fail(error, "an argument struct of another size");
      if (launch->shared_bytes > self->table_.max_shared_bytes) return fail(error, "too much shared memory");
      self->launched.push_back({k->name, *launch});
      try {
        k->launch(*k, {launch->grid_x, launch->grid_y, launch->grid_z}, launch->threads, launch->shared_bytes, launch->arguments, launch->resident != 0);
      } catch (const std::exception& e) {
        return fail(error, e.what());
      }
      return TURBO_OK;
    };
  }
  const turbo_device* get() const { return &table_; }

  int modules = 0;
  std::vector<Launched> launched;

 private:
  static turbo_status fail(turbo_error* error, const char* why) {
    if (error) std::snprintf(error->message, sizeof error->message, "%s", why);
    return TURBO_INTERNAL;
  }
  turbo_device table_{};
};

/// The weight format of plugins/<folder> for the fiber platform.
class DeviceFormat {
 public:
  DeviceFormat(const std::string& folder, FiberDevice& device, const std::string& activations = "int8") : host_(activations) {
    const std::string path = std::string(TURBO_BUILD) + "/lib/turbo-fiber/plugins/" + folder + "/libturbo_" + folder + "_hip.so";
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      ADD_FAILURE() << dlerror();
      std::abort();
    }
    const auto query = reinterpret_cast<turbo_plugin_query_fn>(dlsym(library, TURBO_PLUGIN_QUERY_SYMBOL));
    component_ = &query(TURBO_ABI_MAJOR, TURBO_ABI_MINOR)->components[0];
    status = component_->create(host_.get(), &self, &error);
    host = static_cast<const turbo_weight_format*>(component_->query_interface(TURBO_WEIGHT_FORMAT_1));
    table = static_cast<const turbo_weight_format_device*>(component_->query_interface(TURBO_WEIGHT_FORMAT_DEVICE_DRAFT));
    client = static_cast<const turbo_device_client*>(component_->query_interface(TURBO_DEVICE_CLIENT_DRAFT));
    if (status != TURBO_OK) return;
    EXPECT_EQ(client->attach(self, device.get(), &error), TURBO_OK) << error.message;
  }
  ~DeviceFormat() {
    if (status != TURBO_OK) return;
    client->detach(self);
    component_->destroy(self);
  }
  DeviceFormat(const DeviceFormat&) = delete;
  DeviceFormat& operator=(const DeviceFormat&) = delete;

  /// The packed form, exactly as long as the format says, in 256-byte aligned memory.
  struct Packed {
    std::unique_ptr<uint8_t, void (*)(void*)> memory{nullptr, &std::free};
    turbo_matrix matrix{};
  };
  Packed pack(uint32_t type, uint64_t rows, uint64_t cols, const std::vector<uint8_t>& source) {
    Packed packed;
    uint64_t bytes = 0, alignment = 0;
    uint32_t tile = 0;
    EXPECT_EQ(host->packed_size(self, type, rows, cols, &bytes, &alignment, &tile, &error), TURBO_OK) << error.message;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes) != 0) std::abort();
    packed.memory.reset(static_cast<uint8_t*>(memory));
    std::memset(memory, 0xa5, bytes);
    // In two ranges, as several threads would.
    const uint64_t middle = rows / 2 / tile * tile;
    for (const auto& [begin, end] : {std::pair{uint64_t{0}, middle}, std::pair{middle, rows}})
      EXPECT_EQ(host->repack(self, type, rows, cols, source.data(), source.size(), memory, begin, end, &error), TURBO_OK) << error.message;
    packed.matrix = {sizeof(turbo_matrix), type, rows, cols, memory, bytes};
    return packed;
  }

  turbo_status matmul(turbo_device_matmul args) {
    turbo_status result = table->check(self, &args, &error);
    if (result != TURBO_OK) return result;
    const uint64_t bytes = table->workspace_bytes(self, &args);
    void* workspace = nullptr;
    if (posix_memalign(&workspace, 256, bytes + 1) != 0) std::abort();
    std::memset(workspace, 0xff, bytes);
    std::unique_ptr<void, void (*)(void*)> owner(workspace, &std::free);
    args.workspace = workspace;
    return table->matmul(self, nullptr, &args, &error);
  }

  const char* option_schema() const { return component_->option_schema; }

  void* self = nullptr;
  turbo_status status;
  turbo_error error{sizeof(turbo_error), 0, {}, {}};
  const turbo_weight_format* host;
  const turbo_weight_format_device* table;
  const turbo_device_client* client;

 private:
  OptionHost host_;
  const turbo_component* component_;
};

}  // namespace turbo::testing
