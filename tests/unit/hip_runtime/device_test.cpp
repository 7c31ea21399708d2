// turbo_device over a runtime: which code object is taken, what broken calls get, memory by tag.
#include "fixture.h"
#include "isa.h"

namespace turbo::hip {
namespace {

std::vector<turbo_code_object> objects_of(const std::vector<const char*>& isas) {
  std::vector<turbo_code_object> objects;
  for (const char* isa : isas) objects.push_back({sizeof(turbo_code_object), 0, isa, "x", 1});
  return objects;
}

std::string tried(const char* isa, const std::vector<const char*>& isas) {
  const auto objects = objects_of(isas);
  std::string names;
  for (const uint32_t i : candidate_objects(isa, objects.data(), static_cast<uint32_t>(objects.size()))) names += std::string(names.empty() ? "" : " ") + isas[i];
  return names;
}

TEST(Isa, ExactThenFamily) {
  const std::vector<const char*> amd = {"gfx1030", "gfx1031", "gfx1100"};
  EXPECT_EQ(tried("gfx1031", amd), "gfx1031 gfx1030");
  EXPECT_EQ(tried("gfx1030", amd), "gfx1030 gfx1031");
  EXPECT_EQ(tried("gfx1036", amd), "gfx1030 gfx1031");
  EXPECT_EQ(tried("gfx1037", amd), "");
  EXPECT_EQ(tried("gfx1034", {"gfx1032", "gfx1030"}), "gfx1030 gfx1032");
  EXPECT_EQ(tried("gfx1101", amd), "") << "RDNA3 has no common target";
  EXPECT_EQ(tried("gfx1100", amd), "gfx1100");
  EXPECT_EQ(tried("gfx906", amd), "");
  EXPECT_EQ(tried("sm_90", {"sm_80", "sm_90", "sm_89"}), "sm_90");
  EXPECT_EQ(tried("sm_89", {"sm_80", "sm_90", "sm_86", "sm_86a"}), "sm_86 sm_80");
  EXPECT_EQ(tried("sm_100", {"sm_90", "sm_103"}), "");
  EXPECT_EQ(tried("fiber", {"fiber"}), "fiber");
  EXPECT_EQ(plain_isa("gfx1031:sramecc-:xnack-"), "gfx1031");
  EXPECT_EQ(plain_isa("gfx1100"), "gfx1100");
  EXPECT_EQ(normalised_isa("gfx1036"), "gfx1030");
  EXPECT_EQ(normalised_isa("gfx1150"), "gfx1150");
}

TEST(DeviceTable, ModuleLoadNamesWhatThereIs) {
  FiberBench bench;
  const turbo_device& table = *bench.device->table();
  EXPECT_STREQ(table.isa, "fiber");
  turbo_error error = fresh_error();
  turbo_module* module = nullptr;
  const auto objects = objects_of({"gfx1030", "gfx1031"});
  EXPECT_EQ(table.module_load(table.ctx, objects.data(), 2, &module, &error), TURBO_UNSUPPORTED);
  EXPECT_STREQ(error.message, "no code object for fiber: there are gfx1030, gfx1031");
  EXPECT_EQ(table.module_load(table.ctx, nullptr, 0, &module, &error), TURBO_UNSUPPORTED);
  EXPECT_TRUE(contains(error.message, "there are none"));
  // Objects of a later version are longer.
  struct Longer {
    turbo_code_object object;
    uint64_t more;
  } longer[2] = {{objects[0], 1}, {turbo_kernels_kernels[0], 2}};
  longer[0].object.struct_size = longer[1].object.struct_size = sizeof(Longer);
  EXPECT_EQ(table.module_load(table.ctx, &longer[0].object, 2, &module, &error), TURBO_OK) << error.message;
  turbo_kernel* kernel = nullptr;
  EXPECT_EQ(table.kernel(table.ctx, module, "test_add", &kernel, &error), TURBO_OK);
  uint32_t blocks = 0;
  EXPECT_EQ(table.resident_blocks(table.ctx, kernel, 64, 0, &blocks, &error), TURBO_OK);
  EXPECT_EQ(blocks, 2 * table.compute_units);
  EXPECT_EQ(table.kernel(table.ctx, module, "none", &kernel, &error), TURBO_NOT_FOUND);
  table.module_unload(table.ctx, module);
  table.module_unload(table.ctx, module);  // again: nothing
}

// A device whose runtime takes only what it is told to.
struct Picky : Runtime {
  std::string takes;
  std::vector<std::string> asked;
  const char* platform() const override { return "HIP"; }
  std::string versions() const override { return "HIP runtime 0.0"; }
  uint32_t device_count() override { return 1; }
  DeviceFacts facts(uint32_t) override { return {}; }
  void open(uint32_t) override {}
  uint64_t memory_free() override { return 0; }
  void* allocate(uint32_t, uint64_t) override { return nullptr; }
  void release(uint32_t, void*) noexcept override {}
  turbo_stream* create_stream() override { return new turbo_stream; }
  void destroy_stream(turbo_stream* stream) noexcept override { delete stream; }
  void copy(turbo_stream*, void*, const void*, uint64_t, uint32_t) override {}
  void fill(turbo_stream*, void*, uint8_t, uint64_t) override {}
  void sync(turbo_stream*) override {}
  turbo_module* load(const turbo_code_object& object) override {
    asked.push_back(object.isa);
    if (takes != object.isa) check(209, "hipModuleLoadData");
    return new turbo_module;
  }
  void unload(turbo_module* module) noexcept override { delete module; }
  turbo_kernel* kernel(turbo_module*, const char*) override { return nullptr; }
  uint32_t resident_blocks(turbo_kernel*, uint32_t, uint32_t) override { return 0; }
  Event* create_event(bool) override { return nullptr; }
  void destroy_event(Event*) noexcept override {}
  void record(Event*, turbo_stream*) override {}
  void wait(turbo_stream*, Event*) override {}
  bool done(Event*) override { return true; }
  void sync(Event*) override {}
  float elapsed_ms(Event*, Event*) override { return 0; }
  uint32_t graph_nodes(Graph*) const override { return 0; }
  void destroy_graph(Graph*) noexcept override {}
  std::string error_text(int) const override { return "hipErrorNoBinaryForGpu"; }
  void do_launch(turbo_stream*, turbo_kernel*, const turbo_launch&) override {}
  void do_begin_capture(turbo_stream*) override {}
  Graph* do_end_capture(turbo_stream*) override { return nullptr; }
  void do_launch_graph(turbo_stream*, Graph*) override {}
};

TEST(DeviceTable, AnObjectOfTheFamilyServesOnlyWhereTheRuntimeTakesIt) {
  const auto objects = objects_of({"gfx1031", "gfx1100", "gfx1030"});
  for (const char* takes : {"gfx1030", "gfx1031", "none"}) {
    auto runtime = std::make_unique<Picky>();
    Picky& picky = *runtime;
    picky.takes = takes;
    DeviceFacts facts;
    facts.isa = "gfx1032";
    Device device(Host(nullptr), std::move(runtime), facts);
    if (takes == std::string("none")) {
      const std::string message = failure(TURBO_UNSUPPORTED, [&] { device.load(objects.data(), 3); });
      EXPECT_EQ(message, "no code object for gfx1032: there are gfx1031, gfx1100, gfx1030; gfx1030: hipModuleLoadData: hipErrorNoBinaryForGpu; "
                         "gfx1031: hipModuleLoadData: hipErrorNoBinaryForGpu");
    } else {
      turbo_module* const module = device.load(objects.data(), 3);
      EXPECT_EQ(picky.asked.back(), takes);
      device.unload(module);
    }
    EXPECT_EQ(picky.asked.front(), "gfx1030");
  }
}

TEST(DeviceTable, BrokenCallsAreRefused) {
  FiberBench bench;
  const turbo_device& t = *bench.device->table();
  turbo_error error = fresh_error();
  turbo_module* module = nullptr;
  turbo_kernel* kernel = bench.kernel("test_add");
  uint32_t blocks = 0;
  turbo_launch launch{};
  EXPECT_EQ(t.module_load(t.ctx, nullptr, 1, &module, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(t.module_load(nullptr, turbo_kernels_kernels, 1, &module, nullptr), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(t.launch(t.ctx, t.stream, kernel, &launch, &error), TURBO_INVALID_ARGUMENT) << "a launch without size";
  EXPECT_EQ(t.launch(t.ctx, nullptr, kernel, &launch, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(t.resident_blocks(t.ctx, kernel, 48, 0, &blocks, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(t.allocate(t.ctx, TURBO_MEMORY_HOST, 16, "x", &error), nullptr);
  EXPECT_EQ(error.code, TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(t.allocate(t.ctx, TURBO_MEMORY_DEVICE, 0, "x", &error), nullptr);
  EXPECT_EQ(t.copy(t.ctx, t.stream, nullptr, nullptr, 4, TURBO_COPY_TO_HOST, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(t.copy(t.ctx, t.stream, nullptr, nullptr, 0, TURBO_COPY_TO_HOST, &error), TURBO_OK);
  EXPECT_EQ(t.fill(t.ctx, t.stream, &error, 256, 4, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(t.sync(t.ctx, nullptr, &error), TURBO_INVALID_ARGUMENT);
  t.release(t.ctx, nullptr);
  t.release(t.ctx, &error);
  EXPECT_TRUE(bench.host.logged("release of an address that is not allocated"));
}

TEST(DeviceTable, MemoryIsAccountedByTagAndNothingIsLeft) {
  const uint64_t before = fiber_memory_in_use();
  fake::Host host;
  {
    auto runtime = make_fiber_runtime();
    runtime->open(0);
    const DeviceFacts facts = runtime->facts(0);
    Device device(Host(host.raw()), std::move(runtime), facts);
    const turbo_device& t = *device.table();
    void* weights = t.allocate(t.ctx, TURBO_MEMORY_DEVICE, 1000, "weights", nullptr);
    void* kv = t.allocate(t.ctx, TURBO_MEMORY_PINNED, 24, "kv", nullptr);
    void* nameless = t.allocate(t.ctx, TURBO_MEMORY_DEVICE, 8, nullptr, nullptr);
    ASSERT_TRUE(weights && kv && nameless);
    EXPECT_EQ(host.accounted_bytes("weights"), 1000);
    EXPECT_EQ(host.accounted_bytes(), 1032);
    EXPECT_EQ(device.bytes_by_tag().at("other"), 8u);
    EXPECT_EQ(device.bytes(TURBO_MEMORY_PINNED), 24u);
    EXPECT_EQ(device.runtime().memory_free(), device.facts().memory_total - 1032);
    t.release(t.ctx, weights);
    EXPECT_EQ(host.accounted_bytes("weights"), 0);
  }
  EXPECT_EQ(host.accounted_bytes(), 0);
  EXPECT_TRUE(host.logged("24 bytes of 'kv' were not released"));
  EXPECT_EQ(fiber_memory_in_use(), before);
  EXPECT_EQ(host.bad_releases(), 0u);
}

}  // namespace
}  // namespace turbo::hip
