// The helper classes for plugins with kernels of their own, over a real device table.
#include <turbo/device.hpp>

#include "fixture.h"

namespace turbo::hip {
namespace {

class Client : public DeviceClient<Client> {
 public:
  void attach(const turbo_device& device) override {
    module_ = DeviceModule(device, objects, n_objects);
    add = module_.kernel<AddArgs>(kernel_name);
    meet = module_.kernel<MeetArgs>("test_meet");
    scratch = DeviceArray<float>(device, TURBO_MEMORY_DEVICE, 64, "scratch");
  }
  void detach() noexcept override {
    ++detached;
    scratch = {};
    module_ = {};
  }
  const turbo_code_object* objects = turbo_kernels_kernels;
  uint32_t n_objects = 1;
  const char* kernel_name = "test_add";
  int detached = 0;
  DeviceKernel<AddArgs> add;
  DeviceKernel<MeetArgs> meet;
  DeviceArray<float> scratch;

 private:
  DeviceModule module_;
};

const turbo_device_client& client_table() {
  EXPECT_EQ(Client::interface("turbo.other/1"), nullptr);
  return *static_cast<const turbo_device_client*>(Client::interface(TURBO_DEVICE_CLIENT_DRAFT));
}

TEST(DeviceClient, AttachLoadsLaunchesRunAndDetachGivesBack) {
  FiberBench bench;
  const turbo_device& device = *bench.device->table();
  Client client;
  EXPECT_THROW(client.add.launch(device.stream, {1}, 32, AddArgs{}), Failure) << "not loaded yet";
  turbo_error error = fresh_error();
  ASSERT_EQ(client_table().attach(&client, &device, &error), TURBO_OK) << error.message;
  EXPECT_EQ(bench.host.accounted_bytes("scratch"), 256);
  bench.runtime().fill(device.stream, client.scratch.get(), 0, client.scratch.bytes());
  client.add.launch(device.stream, {2}, 32, AddArgs{client.scratch.get(), client.scratch.get(), client.scratch.get(), 64, 0});
  EXPECT_EQ(client.scratch.get()[63], 0.f);
  EXPECT_EQ(client.add.resident_blocks(32), 8u);
  EXPECT_TRUE(contains(failure(TURBO_INVALID_ARGUMENT, [&] { client.add.launch(device.stream, {1}, 128, AddArgs{}); }), "kernel test_add"));
  EXPECT_TRUE(contains(failure(TURBO_INVALID_ARGUMENT, [&] { client.meet.launch(device.stream, {9}, 32, MeetArgs{}, 0, true); }), "the device holds 8"));
  client_table().detach(&client);
  EXPECT_EQ(bench.host.accounted_bytes(), 0);
  EXPECT_EQ(client.detached, 1);
}

TEST(DeviceClient, AFailedAttachLeavesNothingAndSaysWhy) {
  FiberBench bench;
  const turbo_device& device = *bench.device->table();
  turbo_error error = fresh_error();
  Client client;
  client.kernel_name = "test_none";
  EXPECT_EQ(client_table().attach(&client, &device, &error), TURBO_NOT_FOUND);
  EXPECT_TRUE(contains(error.message, "test_none: kernel: test_none: not found")) << error.message;
  EXPECT_EQ(client.detached, 1);
  const turbo_code_object other{sizeof(turbo_code_object), 0, "gfx1030", "x", 1};
  client.objects = &other;
  EXPECT_EQ(client_table().attach(&client, &device, &error), TURBO_UNSUPPORTED);
  EXPECT_STREQ(error.message, "kernels: no code object for fiber: there are gfx1030");
  EXPECT_EQ(client_table().attach(&client, nullptr, &error), TURBO_INVALID_ARGUMENT);
  turbo_device older = device;
  older.struct_size = 16;
  EXPECT_EQ(client_table().attach(&client, &older, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(bench.host.accounted_bytes(), 0);
}

}  // namespace
}  // namespace turbo::hip
