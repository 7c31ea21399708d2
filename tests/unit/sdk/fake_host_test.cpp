// The fake host does what the host contract says, and counts what it should.
#include "plugins.h"

#include <gtest/gtest.h>
#include <turbo/plugin.hpp>

#include <atomic>
#include <cstring>

using namespace turbo;

namespace {

template <typename Table>
const Table* service(const fake::Host& host, const char* id) {
  return static_cast<const Table*>(host.raw()->query_service(host.raw(), id));
}

}  // namespace

TEST(FakeHost, UnknownAndAbsentServicesAreNull) {
  fake::Host host;
  EXPECT_EQ(service<void>(host, "turbo.host.nothing/1"), nullptr);
  EXPECT_EQ(service<void>(host, nullptr), nullptr);
  EXPECT_NE(service<void>(host, TURBO_HOST_LOG), nullptr);
  host.absent.insert(TURBO_HOST_LOG);
  EXPECT_EQ(service<void>(host, TURBO_HOST_LOG), nullptr);
  EXPECT_EQ(service<void>(host, TURBO_HOST_PROGRAM_DRAFT), nullptr) << "no pack";
  const Host view(host.raw());
  view.log(TURBO_LOG_INFO, "goes nowhere");
  EXPECT_TRUE(host.log().empty());
}

TEST(FakeHost, OptionsKeepTheirTypes) {
  fake::Host host;
  host.options["text"] = "abc";
  host.options["count"] = 7;
  host.options["share"] = 0.5;
  host.options["on"] = true;
  const Host view(host.raw());
  EXPECT_EQ(view.option("text", "x"), "abc");
  EXPECT_EQ(view.option("count", 1), 7);
  EXPECT_EQ(view.option("share", 0.1), 0.5);
  EXPECT_TRUE(view.option("on", false));
  EXPECT_EQ(view.option("missing", 3), 3);
  int64_t value;
  const auto* config = service<turbo_host_config>(host, TURBO_HOST_CONFIG);
  EXPECT_EQ(config->get_i64(config->ctx, "text", &value), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(config->get_i64(config->ctx, "missing", &value), TURBO_NOT_FOUND);
}

TEST(FakeHost, CapturesLogMetricsAndClock) {
  fake::Host host;
  const Host view(host.raw());
  view.log(TURBO_LOG_WARN, "careful");
  view.counter_add("drafts", 2);
  view.counter_add("drafts");
  view.gauge_set("depth", 4);
  EXPECT_TRUE(host.logged("care"));
  EXPECT_EQ(host.log()[0].level, TURBO_LOG_WARN);
  EXPECT_EQ(host.counter("drafts"), 3);
  EXPECT_EQ(host.gauge("depth"), 4);
  EXPECT_EQ(view.now_ns(), 0u);
  host.advance(1500);
  EXPECT_EQ(view.now_ns(), 1500u);
}

TEST(FakeHost, CountsAllocationsByTagAndFindsLeaks) {
  fake::Host host;
  const auto* alloc = service<turbo_host_alloc>(host, TURBO_HOST_ALLOC);
  Error error;
  void* a = alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 100, 64, "weights", &error);
  void* b = alloc->allocate(alloc->ctx, TURBO_MEMORY_PINNED, 50, 4096, "kv", &error);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 4096, 0u);
  EXPECT_EQ(host.live_bytes(), 150u);
  EXPECT_EQ(host.live_bytes("kv"), 50u);
  alloc->release(alloc->ctx, a);
  EXPECT_EQ(host.leaks(), 1u);
  alloc->release(alloc->ctx, a);
  EXPECT_EQ(host.bad_releases(), 1u);
  EXPECT_EQ(alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 1, 3, "x", &error), nullptr);
  EXPECT_EQ(error.code, TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, ~uint64_t{0}, 8, "x", &error), nullptr);
  EXPECT_EQ(error.code, TURBO_RESOURCE_EXHAUSTED);
  host.fail_allocation = 2;
  void* c = alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 8, 8, "x", &error);
  EXPECT_NE(c, nullptr);
  EXPECT_EQ(alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 8, 8, "x", &error), nullptr);
  EXPECT_EQ(host.allocations(), 3u);
}

TEST(FakeHost, WorkersEndWhenAsked) {
  fake::Host host;
  host.compute_threads = 3;
  const auto* threads = service<turbo_host_threads>(host, TURBO_HOST_THREADS);
  EXPECT_EQ(threads->compute_threads, 3u);
  struct Work { const turbo_host_threads* threads; std::atomic<int> rounds{0}; } work{threads};
  ASSERT_EQ(threads->spawn(threads->ctx, "lookup", [](void* argument) {
    auto* w = static_cast<Work*>(argument);
    do ++w->rounds, std::this_thread::yield();
    while (!w->threads->stopping(w->threads->ctx));
  }, &work, nullptr), TURBO_OK);
  EXPECT_EQ(host.worker_names(), (std::vector<std::string>{"lookup"}));
  host.stop_workers();
  EXPECT_GT(work.rounds, 0);
}

TEST(FakeHost, FilesTensorsAndTokenizerAreScripted) {
  fake::Host host;
  host.files["a.bin"] = {1, 2, 3, 4};
  const auto* file = service<turbo_host_file>(host, TURBO_HOST_FILE);
  uint64_t n = 0;
  uint8_t bytes[4] = {};
  EXPECT_EQ(file->size(file->ctx, "a.bin", &n, nullptr), TURBO_OK);
  EXPECT_EQ(n, 4u);
  EXPECT_EQ(file->read(file->ctx, "a.bin", 2, bytes, 2, nullptr), TURBO_OK);
  EXPECT_EQ(bytes[1], 4);
  EXPECT_EQ(file->read(file->ctx, "a.bin", 3, bytes, 2, nullptr), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(file->read(file->ctx, "a.bin", ~uint64_t{0}, bytes, 2, nullptr), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(file->size(file->ctx, "b.bin", &n, nullptr), TURBO_NOT_FOUND);

  host.tensors["w"] = {2, 3, {1, 2, 3, 4, 5, 6}};
  host.vocabulary = {"a", "b", "ab"};
  const auto* model = service<turbo_host_model>(host, TURBO_HOST_MODEL);
  turbo_view view{};
  view.struct_size = sizeof view;
  ASSERT_EQ(model->tensor(model->ctx, "w", &view, nullptr), TURBO_OK);
  EXPECT_EQ(view.shape[1], 3u);
  EXPECT_EQ(static_cast<float*>(view.data)[5], 6);
  EXPECT_EQ(model->tensor(model->ctx, "v", &view, nullptr), TURBO_NOT_FOUND);
  int32_t ids[4];
  n = 1;
  EXPECT_EQ(model->encode(model->ctx, "aba", 3, ids, &n), TURBO_RESOURCE_EXHAUSTED);
  EXPECT_EQ(n, 2u);
  ASSERT_EQ(model->encode(model->ctx, "aba", 3, ids, &n), TURBO_OK);
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(ids[1], 0);
  const char* text = nullptr;
  ASSERT_EQ(model->token_bytes(model->ctx, 2, &text, &n), TURBO_OK);
  EXPECT_EQ(std::string(text, n), "ab");
  EXPECT_EQ(model->token_bytes(model->ctx, 9, &text, &n), TURBO_NOT_FOUND);
}

TEST(FakeHost, OpeningWhatIsNoPluginSaysWhy) {
  EXPECT_THROW(fake::Library("/nowhere/libx.so"), std::runtime_error);
  fake::Host host;
  EXPECT_THROW(fake::Component(open_template("drafter"), "drafter", "other", TURBO_TIER_CPU, host), std::runtime_error);
}
