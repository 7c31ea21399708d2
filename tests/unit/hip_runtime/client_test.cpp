// The helper classes for plugins with kernels of their own, over a real device table.
#include <turbo/device.hpp>

#include "fixture.h"

namespace turbo::hip {
namespace {

class Client : public DeviceClient<Client> {
 public:
  enum : uint32_t { add, meet };
  void attach(const turbo_device& device) override {
    kernels.attach(&device, {{objects, n_objects, {add_name}}, {turbo_kernels_kernels, 1, {"test_meet"}}});
    scratch = DeviceArray<float>(device, TURBO_MEMORY_DEVICE, n_scratch, "scratch");
    table = kernels.upload(values, 3, "table");
  }
  void detach() noexcept override {
    ++detached;
    scratch = {};
    table = {};
    kernels.detach();
  }
  const turbo_code_object* objects = turbo_kernels_kernels;
  uint32_t n_objects = 1;
  uint64_t n_scratch = 64;
  const char* add_name = "test_add";
  float values[3] = {1, 2, 3};
  int detached = 0;
  DeviceKernels kernels;
  DeviceArray<float> scratch, table;
};

const turbo_device_client& client_table() {
  EXPECT_EQ(Client::interface("turbo.other/1"), nullptr);
  return *static_cast<const turbo_device_client*>(Client::interface(TURBO_DEVICE_CLIENT_DRAFT));
}

TEST(DeviceClient, AttachLoadsLaunchesRunAndDetachGivesBack) {
  FiberBench bench;
  const turbo_device& device = *bench.device->table();
  Client client;
  const DeviceKernels& kernels = client.kernels;
  EXPECT_THROW(kernels.launch(device.stream, Client::add, {1}, 32, AddArgs{}), Failure) << "not loaded yet";
  EXPECT_THROW(kernels.fill(device.stream, &client, 0, 4), Failure);
  turbo_error error = fresh_error();
  ASSERT_EQ(client_table().attach(&client, &device, &error), TURBO_OK) << error.message;
  EXPECT_EQ(kernels.device(), &device);
  EXPECT_EQ(bench.host.accounted_bytes("scratch"), 256);
  EXPECT_EQ(bench.host.accounted_bytes("table"), 12) << "what it was staged in is given back";
  EXPECT_EQ(client.table.get()[2], 3.f);
  kernels.fill(device.stream, client.scratch.get(), 0, client.scratch.bytes());
  kernels.launch(device.stream, Client::add, {2}, 32, AddArgs{client.scratch.get(), client.scratch.get(), client.scratch.get(), 64, 0});
  kernels.launch(device.stream, Client::add, 0, 1, 32, 0, AddArgs{});
  kernels.sync(device.stream);
  EXPECT_EQ(client.scratch.get()[63], 0.f);
  EXPECT_EQ(kernels.resident_blocks(Client::add, 32), 8u);
  EXPECT_THROW(kernels.launch(device.stream, 2, {1}, 32, AddArgs{}), Failure) << "there is no such kernel";
  EXPECT_TRUE(contains(failure(TURBO_INVALID_ARGUMENT, [&] { kernels.launch(device.stream, Client::add, {1}, 128, AddArgs{}); }), "kernel test_add"));
  EXPECT_TRUE(contains(failure(TURBO_INVALID_ARGUMENT, [&] { kernels.launch(device.stream, Client::meet, {9}, 32, MeetArgs{}, 0, true); }), "the device holds 8"));
  client_table().detach(&client);
  EXPECT_EQ(bench.host.accounted_bytes(), 0);
  EXPECT_EQ(client.detached, 1);
  EXPECT_EQ(kernels.device(), nullptr);
  EXPECT_THROW(kernels.launch(device.stream, Client::add, {1}, 32, AddArgs{}), Failure) << "not loaded any more";
}

TEST(DeviceClient, AFailedAttachLeavesNothingAndSaysWhy) {
  FiberBench bench;
  const turbo_device& device = *bench.device->table();
  turbo_error error = fresh_error();
  Client client;
  client.add_name = "test_none";
  EXPECT_EQ(client_table().attach(&client, &device, &error), TURBO_NOT_FOUND);
  EXPECT_TRUE(contains(error.message, "kernel: test_none: not found")) << error.message;
  EXPECT_EQ(client.detached, 1);
  const turbo_code_object other{sizeof(turbo_code_object), 0, "gfx1030", "x", 1};
  client.objects = &other;
  EXPECT_EQ(client_table().attach(&client, &device, &error), TURBO_UNSUPPORTED);
  EXPECT_STREQ(error.message, "no code object for fiber: there are gfx1030");
  client.objects = turbo_kernels_kernels;
  client.add_name = "test_add";
  client.n_scratch = uint64_t{1} << 40;
  EXPECT_EQ(client_table().attach(&client, &device, &error), TURBO_RESOURCE_EXHAUSTED);
  client.n_scratch = UINT64_MAX / 2;
  EXPECT_EQ(client_table().attach(&client, &device, &error), TURBO_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(error.message, "device memory: the size does not fit");
  EXPECT_EQ(client.kernels.device(), nullptr) << "kernels that were loaded are given back";
  EXPECT_EQ(client_table().attach(&client, nullptr, &error), TURBO_INVALID_ARGUMENT);
  turbo_device older = device;
  older.struct_size = 16;
  EXPECT_EQ(client_table().attach(&client, &older, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(bench.host.accounted_bytes(), 0);
}

}  // namespace
}  // namespace turbo::hip
