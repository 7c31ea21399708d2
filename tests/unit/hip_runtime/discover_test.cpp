// Which device is used, what is said about it, and the check that it must pass. The HIP and CUDA runtimes are asked for
// real: this runs on machines with neither library nor device, and with a library and no device.
#include <dlfcn.h>
#include <turbo/kernel/gpu/fiber.hpp>

#include "device_check.h"
#include "device_check_args.h"
#include "discover.h"
#include "fixture.h"
#include "runtime_amd.h"
#include "runtime_cuda.h"

namespace turbo::hip {
namespace {

std::unique_ptr<Device> open_fiber(fake::Host& host) {
  return open_device(Host(host.raw()), make_fiber_runtime(), turbo_kernels_device_check, turbo_n_kernels_device_check);
}

TEST(Discover, ADeviceThatPassesItsCheckIsOpened) {
  fake::Host host;
  const std::unique_ptr<Device> device = open_fiber(host);
  EXPECT_EQ(device->facts().isa, "fiber");
  EXPECT_EQ(host.accounted_bytes(), 0) << "the check gives its memory back";
  EXPECT_EQ(check_fiber_memory(), "");
}

TEST(Discover, TheCheckTellsWhatIsWrongAndWhere) {
  const ScopedEnv fails("TURBO_FIBER_FAIL", "launch:2"), other("HSA_OVERRIDE_GFX_VERSION", "10.3.0");
  fake::Host host;
  const std::string message = failure(TURBO_INTERNAL, [&] { open_fiber(host); });
  EXPECT_EQ(message, "fiber device 0, fiber, HSA_OVERRIDE_GFX_VERSION=10.3.0, fiber runtime 1: launch: kernel device_check_totals: injected failure");
}

// The kernels of the check with wrong answers, one word at a time.
const gpu::fiber::Kernel* right_kernel(const char* name) {
  return gpu::fiber::Kernel::find(*static_cast<const gpu::fiber::Kernel* const*>(turbo_kernels_device_check[0].data), name);
}
uint32_t spoiled_word = 0;
void spoiled_launch(const gpu::fiber::Kernel& kernel, const uint32_t (&grid)[3], uint32_t threads, uint32_t shared, const void* args, bool resident) {
  const gpu::fiber::Kernel& right = *right_kernel(kernel.name);
  right.launch(right, grid, threads, shared, args, resident);
  if (std::string(kernel.name) == "device_check") {
    const auto& given = *static_cast<const DeviceCheckArgs*>(args);
    if (spoiled_word < kCheckWords) given.words[(3 * kCheckThreads + 17) * kCheckWords + spoiled_word] ^= 0x10;
    else if (spoiled_word == kCheckWords) ++given.totals[5];
    else ++*given.sum;
  } else if (spoiled_word == kCheckWords + 2) {
    ++static_cast<const DeviceCheckTotalsArgs*>(args)->prefix[2];
  }
}

TEST(Discover, NoWrongAnswerPasses) {
  gpu::fiber::Kernel first = *right_kernel("device_check"), second = *right_kernel("device_check_totals");
  first.launch = second.launch = &spoiled_launch;
  first.next = &second;
  second.next = nullptr;
  const gpu::fiber::Kernel* list = &first;
  const turbo_code_object object{sizeof(turbo_code_object), 0, "fiber", &list, sizeof list};
  const char* const named[] = {"sum over lanes, block 3, thread 17", "sum over a block", "prefix sum over a block", "dot4", "half to float", "float to half",
                               "shuffle", "ballot", "fused multiply-add", "multiply and add apart", "total of block 5", "sum over blocks", "prefix sum over blocks, block 2"};
  fake::Host host;
  for (spoiled_word = 0; spoiled_word < std::size(named); ++spoiled_word) {
    const std::string message =
        failure(TURBO_INTERNAL, [&] { open_device(Host(host.raw()), make_fiber_runtime(), &object, 1); });
    EXPECT_TRUE(contains(message, std::string("self-test: ") + named[spoiled_word])) << message;
    EXPECT_TRUE(contains(message, "fiber device 0, fiber, fiber runtime 1: "));
  }
  spoiled_word = UINT32_MAX - 1;
}

TEST(Discover, TheDeviceWithMostMemoryUnlessOneIsNamed) {
  const ScopedEnv three("TURBO_FIBER_DEVICES", "3");
  const auto runtime = make_fiber_runtime();
  EXPECT_EQ(runtime->device_count(), 3u);
  const auto chosen = [&](const std::string& wanted) { return choose_device(*runtime, wanted, turbo_kernels_device_check, 1).index; };
  EXPECT_EQ(chosen("auto"), 0u);
  EXPECT_EQ(chosen(""), 0u);
  EXPECT_EQ(chosen("2"), 2u);
  EXPECT_EQ(chosen("02"), 2u);
  EXPECT_EQ(chosen("DEVICE 1"), 1u) << "part of the name, in any case";
  EXPECT_EQ(chosen("fiber"), 0u) << "several: the one with most memory";
  const std::string all = "device 0, fiber device 0 (fiber, 4.0 GiB); device 1, fiber device 1 (fiber, 3.8 GiB); device 2, fiber device 2 (fiber, 3.5 GiB)";
  for (const char* wanted : {"3", "99", "7900", "-1", "device 3", "radeon"})
    EXPECT_EQ(failure(TURBO_NOT_FOUND, [&] { chosen(wanted); }), "device '" + std::string(wanted) + "': the fiber runtime has only " + all);
  EXPECT_LT(failure(TURBO_NOT_FOUND, [&] { chosen(std::string(3000, 'x')); }).size(), 300u);
  fake::Host host;
  host.options["device"] = std::string("1");
  Probe answer;
  probe_device(Host(host.raw()), answer, &make_fiber_runtime, turbo_kernels_device_check, 1);
  EXPECT_EQ(answer.score, 100);
  EXPECT_EQ(answer.reason,
            "fiber device 1 (fiber, 3.8 GiB), fiber runtime 1, device 1 of 3; device 0: fiber device 0 (fiber, 4.0 GiB); device 2: fiber device 2 (fiber, 3.5 GiB)");
  host.options["device"] = std::string("other");
  probe_device(Host(host.raw()), answer, &make_fiber_runtime, turbo_kernels_device_check, 1);
  EXPECT_EQ(answer.score, 0);
  EXPECT_EQ(answer.reason, "device 'other': the fiber runtime has only " + all);
}

TEST(Discover, ADeviceWithoutCodeIsToldWithWhatThereIs) {
  const ScopedEnv other("HSA_OVERRIDE_GFX_VERSION", "10.3.0");
  const turbo_code_object objects[] = {{sizeof(turbo_code_object), 0, "gfx1030", "x", 1}, {sizeof(turbo_code_object), 0, "gfx1100", "x", 1}};
  fake::Host host;
  Probe answer;
  probe_device(Host(host.raw()), answer, &make_fiber_runtime, objects, 2);
  EXPECT_EQ(answer.score, 0);
  EXPECT_EQ(answer.reason, "device 0, fiber device 0 (fiber, 4.0 GiB): no code object for fiber: there are gfx1030, gfx1100 (fiber runtime 1, HSA_OVERRIDE_GFX_VERSION=10.3.0)");
}

TEST(Discover, ADeviceWithOtherWavesIsNotUsed) {
  const ScopedEnv wide("TURBO_FIBER_WAVE", "64");
  fake::Host host;
  Probe answer;
  probe_device(Host(host.raw()), answer, &make_fiber_runtime, turbo_kernels_device_check, 1);
  EXPECT_EQ(answer.score, 0);
  EXPECT_EQ(answer.reason, "device 0, fiber device 0 (fiber, 4.0 GiB): its waves have 64 lanes; kernels are written for 32 (fiber runtime 1)");
}

TEST(Discover, NoDeviceIsNoError) {
  const ScopedEnv none("TURBO_FIBER_DEVICES", "0");
  fake::Host host;
  Probe answer;
  probe_device(Host(host.raw()), answer, &make_fiber_runtime, turbo_kernels_device_check, 1);
  EXPECT_EQ(answer.score, 0);
  EXPECT_EQ(answer.reason, "fiber runtime: no device");
}

bool loads(const char* library) { return dlopen(library, RTLD_NOW | RTLD_LOCAL) != nullptr; }

// On a machine with a device of the kind there is nothing to see here.
template <typename Make>
std::string without_device(Make make) {
  try {
    make();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code, TURBO_UNSUPPORTED) << failure.message;
    EXPECT_FALSE(failure.hint.empty());
    return failure.message;
  }
  return "";
}

TEST(Hip, WithoutLibraryOrDeviceItSaysWhich) {
  const std::string message = without_device([] { make_amd_runtime(); });
  if (message.empty()) GTEST_SKIP() << "there is an AMD device";
  if (loads("libamdhip64.so.7") || loads("libamdhip64.so.6") || loads("libamdhip64.so.5")) {
    EXPECT_TRUE(contains(message, "HIP runtime: no device: ")) << message;
    EXPECT_TRUE(contains(message, "libamdhip64.so.")) << message;
    EXPECT_TRUE(contains(message, "hipError")) << message;
    EXPECT_EQ(without_device([] { make_amd_runtime(); }), message) << "and again, the same";
  } else {
    EXPECT_TRUE(contains(message, "HIP runtime: library missing: libamdhip64.so.7: cannot open shared object file")) << message;
  }
}

TEST(Cuda, WithoutLibraryOrDeviceItSaysWhich) {
  const std::string message = without_device([] { make_cuda_runtime(); });
  if (message.empty()) GTEST_SKIP() << "there is an NVIDIA device";
  EXPECT_TRUE(contains(message, loads("libcuda.so.1") ? "CUDA driver: no device: " : "CUDA driver: library missing: libcuda.so.1: cannot open shared object file"))
      << message;
}

TEST(Hip, AMissingLibraryAndAnotherLibraryAreToldApart) {
  constexpr const char* missing[] = {"libturbo-none.so.7", "libturbo-none.so.6"};
  const std::string lacks = without_device([&] { make_amd_runtime(missing); });
  EXPECT_TRUE(contains(lacks, "library missing: libturbo-none.so.7: cannot open")) << lacks;
  EXPECT_TRUE(contains(lacks, "; libturbo-none.so.6: cannot open")) << lacks;
  constexpr const char* other[] = {"libturbo-none.so.7", "libm.so.6"};
  const std::string old = without_device([&] { make_amd_runtime(other); });
  EXPECT_TRUE(contains(old, "HIP runtime: version: libm.so.6 has no hipInit, hipGetDeviceCount, ")) << old;
  const std::string cuda = without_device([&] { make_cuda_runtime(other); });
  EXPECT_TRUE(contains(cuda, "CUDA driver: version: libm.so.6 has no cuInit, ")) << cuda;
}

}  // namespace
}  // namespace turbo::hip
