// The arch pack's device and its clients: who is given it, in which order, and what happens when one refuses.
#include <gtest/gtest.h>

#include <memory>

#include "helpers.h"
#include "loader/resolve.h"

namespace turbo::loader {
namespace {

class Device : public testing::Test {
 protected:
  Device() {
    request.weight_types = {{41, "q1_0"}, {0, "f32"}};
    request.kv_k = request.kv_v = "f16";
    services.log = log.logger();
    installation.add_cpu();
    installation.add_stack("stack_hip", "test.hip", "hip");
  }
  Status resolve() {
    resolution.reset();
    catalog = std::make_unique<Catalog>(installation.scan());
    Result<Resolution> resolved = loader::resolve(request, *catalog, services, &report);
    if (resolved) resolution = std::make_unique<Resolution>(*std::move(resolved));
    return resolved.status();
  }
  std::string reason(const std::string& name, const std::string& plugin) const {
    for (const Report::Slot& slot : report.slots)
      for (const Report::Rejected& rejected : slot.rejected)
        if (slot.slot == name && rejected.plugin == plugin) return rejected.reason;
    return "";
  }
  static std::vector<std::unique_ptr<ScopedEnv>> clients(const std::string& answer) {
    std::vector<std::unique_ptr<ScopedEnv>> set;
    for (const char* kind : {"weight_format", "kv_codec", "sampler"})
      set.push_back(std::make_unique<ScopedEnv>(fmt::format("FIXTURE:test.hip:{}:client", kind), answer));
    return set;
  }

  Installation installation;
  CapturedLog log;
  Request request;
  Services services;
  Report report;
  std::unique_ptr<Catalog> catalog;
  std::unique_ptr<Resolution> resolution;
};

TEST_F(Device, EveryClientIsAttachedOnceBeforeSelfTestAndDetachedBeforeThePackGoes) {
  const ScopedEnv device("FIXTURE:test.hip:arch_pack:device", "yes");
  const auto set = clients("yes");
  request.spare_codecs[TURBO_KV_SIDE_K] = {"q8"};
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(resolution->tier(), TURBO_TIER_HIP);
  // Two formats, the codecs of both sides and a spare one, the sampler.
  EXPECT_EQ(log.count("attach to isa0"), 6) << log.text();
  EXPECT_EQ(log.count("attach to isa0, weight_format"), 2);
  EXPECT_EQ(log.count("attach to isa0, kv_codec"), 3);
  EXPECT_LT(log.find("create arch_pack"), log.find("attach to isa0"));
  EXPECT_LT(log.find("attach to isa0, sampler"), log.find("self_test"));
  EXPECT_EQ(log.count("detach"), 0);
  ASSERT_TRUE(resolution->start().is_ok());
  resolution.reset();
  EXPECT_EQ(log.count("detach"), 6);
  const auto lines = log.lines();
  int last_detach = -1;
  for (size_t i = 0; i < lines.size(); ++i)
    if (contains(lines[i], "detach")) last_detach = static_cast<int>(i);
  EXPECT_LT(last_detach, log.find("destroy arch_pack"));
  EXPECT_LT(last_detach, log.find("destroy sampler"));
  EXPECT_LT(log.find("stop arch_pack"), log.find("detach"));
}

TEST_F(Device, ComponentsThatAreNoClientsServeToo) {
  const ScopedEnv device("FIXTURE:test.hip:arch_pack:device", "yes");
  const ScopedEnv one("FIXTURE:test.hip:sampler:client", "yes");
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(report.tier, "hip");
  EXPECT_EQ(log.count("attach to isa0"), 1);
}

TEST_F(Device, WithoutAProviderNobodyIsAsked) {
  const auto set = clients("fail");
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(report.tier, "hip");
  EXPECT_EQ(log.count("attach"), 0);
}

TEST_F(Device, AClientThatRefusesLosesTheTierAndSaysWhy) {
  const ScopedEnv device("FIXTURE:test.hip:arch_pack:device", "yes");
  const auto set = clients("yes");
  for (const char* kind : {"weight_format", "kv_codec", "sampler"}) {
    for (const char* how : {"fail", "empty"}) {
      const ScopedEnv broken(fmt::format("FIXTURE:test.hip:{}:client", kind), how);
      const int detached = log.count("detach");
      const int attached = log.count("attach to");
      const Status status = resolve();
      ASSERT_TRUE(status.is_ok()) << status.message();
      EXPECT_EQ(report.tier, "cpu") << kind << how;
      const std::string slot = kind == std::string("weight_format") ? "weight_format:q1_0" : kind == std::string("kv_codec") ? "kv_codec:k" : "sampler";
      const std::string why = how == std::string("fail") ? "attach: no code object for isa0: there are isa1, isa2" : "required call is null: attach";
      EXPECT_TRUE(contains(reason(slot, "test.hip"), why)) << reason(slot, "test.hip");
      EXPECT_TRUE(contains(reason("arch_pack", "test.hip"), "usable, but its tier lost: hip: " + slot)) << reason("arch_pack", "test.hip");
      EXPECT_EQ(log.count("detach") - detached, log.count("attach to") - attached) << "what was attached is detached";
      EXPECT_EQ(log.count("test.hip/pack: create"), log.count("test.hip/pack: destroy"));
    }
  }
}

TEST_F(Device, APackThatFailsAfterItsDeviceWasSharedLetsGoOfTheClients) {
  const ScopedEnv device("FIXTURE:test.hip:arch_pack:device", "yes");
  const ScopedEnv bad("FIXTURE:test.hip:arch_pack:self_test", "fail");
  const auto set = clients("yes");
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(report.tier, "cpu");
  EXPECT_EQ(log.count("attach to isa0"), 5);
  EXPECT_EQ(log.count("detach"), 5);
  EXPECT_LT(log.find("detach"), log.find("destroy arch_pack"));
}

TEST_F(Device, AProviderWithoutADeviceIsAFaultOfThePack) {
  const ScopedEnv device("FIXTURE:test.hip:arch_pack:device", "null");
  const Status status = resolve();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(report.tier, "cpu");
  EXPECT_TRUE(contains(reason("arch_pack", "test.hip"), "device_provider: answered no device")) << reason("arch_pack", "test.hip");
}

TEST_F(Device, ASpareCodecThatRefusesIsLeftOut) {
  const ScopedEnv device("FIXTURE:test.hip:arch_pack:device", "yes");
  request.spare_codecs[TURBO_KV_SIDE_V] = {"q8"};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_TRUE(resolution->spare_codec(TURBO_KV_SIDE_V, "q8"));
  const ScopedEnv refuses("FIXTURE:test.hip:kv_codec_q8:client", "fail");
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_EQ(report.tier, "hip");
  EXPECT_FALSE(resolution->spare_codec(TURBO_KV_SIDE_V, "q8"));
}

}  // namespace
}  // namespace turbo::loader
