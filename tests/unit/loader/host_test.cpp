#include "loader/host.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "helpers.h"

namespace turbo::loader {
namespace {

template <typename Table>
const Table* service(const ComponentHost& host, const char* id) {
  return static_cast<const Table*>(host.host()->query_service(host.host(), id));
}

turbo_error fresh_error() {
  turbo_error error{};
  error.struct_size = sizeof error;
  return error;
}

class RecordingSink : public MetricsSink {
 public:
  void counter_add(const std::string& component, const std::string& name, double value) override {
    add("counter", component, name, value);
  }
  void gauge_set(const std::string& component, const std::string& name, double value) override {
    add("gauge", component, name, value);
  }
  std::vector<std::string> seen;

 private:
  void add(const char* type, const std::string& component, const std::string& name, double value) {
    seen.push_back(fmt::format("{} {} {} {}", type, component, name, value));
  }
};

class FakeModel : public ModelProvider {
 public:
  const turbo_model_facts* facts() override { return &facts_; }
  Status tensor(const std::string& name, turbo_view& view) override {
    if (name != "output.weight") return error(Code::not_found, "tensor '{}': not in the file", name);
    view.shape[0] = 7;
    return Status::ok();
  }
  Result<std::vector<int32_t>> encode(std::string_view text) override { return std::vector<int32_t>(text.size(), 5); }
  Result<std::string_view> token_bytes(int32_t id) override {
    if (id != 5) return error(Code::not_found, "token {}", id);
    return std::string_view("abc");
  }

 private:
  turbo_model_facts facts_{sizeof(turbo_model_facts), 3, "qwen3", 64, 128, 4, 2, 16, 16, 100, 512, 1};
};

TEST(Host, UnknownServicesAreNull) {
  ComponentHost host({.label = "test"});
  EXPECT_EQ(service<void>(host, "turbo.host.log/2"), nullptr);
  EXPECT_EQ(service<void>(host, "turbo.host.log/1 "), nullptr);
  EXPECT_EQ(service<void>(host, ""), nullptr);
  EXPECT_EQ(host.host()->query_service(host.host(), nullptr), nullptr);
  EXPECT_EQ(host.host()->query_service(nullptr, TURBO_HOST_LOG), nullptr);
  // Only offered when the caller supplies what is behind them.
  for (const char* id :
       {TURBO_HOST_MODEL, TURBO_HOST_THREAD_CHECK, TURBO_HOST_REGISTRY_DRAFT, TURBO_HOST_PROGRAM_DRAFT})
    EXPECT_EQ(service<void>(host, id), nullptr) << id;
}

TEST(Host, LogNamesTheComponentAndCleansText) {
  CapturedLog log;
  ComponentHost host({.label = "org.example/mine", .services = {.log = log.logger()}});
  const auto* table = service<turbo_host_log>(host, TURBO_HOST_LOG);
  table->write(table->ctx, TURBO_LOG_WARN, "line\x1b[31m {}");
  table->write(table->ctx, 99, nullptr);
  EXPECT_EQ(log.text(), "org.example/mine: line?[31m {}\n");
}

TEST(Host, ConfigIsTyped) {
  ComponentHost host({.label = "t", .options = {{"s", std::string("x")}, {"i", int64_t{7}}, {"f", 0.5}, {"b", true}}});
  const auto* config = service<turbo_host_config>(host, TURBO_HOST_CONFIG);
  const char* text = nullptr;
  int64_t integer = 0;
  double real = 0;
  uint32_t flag = 0;
  EXPECT_EQ(config->get_string(config->ctx, "s", &text), TURBO_OK);
  EXPECT_STREQ(text, "x");
  EXPECT_EQ(config->get_i64(config->ctx, "i", &integer), TURBO_OK);
  EXPECT_EQ(integer, 7);
  EXPECT_EQ(config->get_f64(config->ctx, "f", &real), TURBO_OK);
  EXPECT_EQ(real, 0.5);
  EXPECT_EQ(config->get_bool(config->ctx, "b", &flag), TURBO_OK);
  EXPECT_EQ(flag, 1u);
  EXPECT_EQ(config->get_i64(config->ctx, "absent", &integer), TURBO_NOT_FOUND);
  EXPECT_EQ(config->get_i64(config->ctx, "s", &integer), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(config->get_f64(config->ctx, "i", &real), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(config->get_string(config->ctx, nullptr, &text), TURBO_INVALID_ARGUMENT);
}

TEST(Host, ClockIsInjected) {
  ComponentHost host({.label = "t", .services = {.now_ns = [] { return uint64_t{42}; }}});
  const auto* clock = service<turbo_host_clock>(host, TURBO_HOST_CLOCK);
  EXPECT_EQ(clock->now_ns(clock->ctx), 42u);
  ComponentHost real({.label = "t"});
  clock = service<turbo_host_clock>(real, TURBO_HOST_CLOCK);
  const uint64_t first = clock->now_ns(clock->ctx);
  EXPECT_LE(first, clock->now_ns(clock->ctx));
}

TEST(Host, MemoryIsAlignedTaggedAndSummed) {
  auto tags = std::make_shared<MemoryTags>();
  CapturedLog log;
  {
    ComponentHost host({.label = "t", .services = {.log = log.logger(), .memory = tags}});
    const auto* alloc = service<turbo_host_alloc>(host, TURBO_HOST_ALLOC);
    turbo_error error = fresh_error();
    void* a = alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 1000, 4096, "weights", &error);
    void* b = alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 64, 64, "weights", nullptr);
    void* c = alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 0, 1, "kv", nullptr);
    ASSERT_TRUE(a && b && c);
    std::memset(a, 1, 1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 4096, 0u);
    EXPECT_EQ(tags->bytes_by_tag().at("weights"), 4096u + 64u);
    alloc->release(alloc->ctx, a);
    EXPECT_EQ(tags->bytes_by_tag().at("weights"), 64u);
    alloc->release(alloc->ctx, a);  // again: logged, ignored
    EXPECT_EQ(log.count("does not own"), 1);
    const struct {
      uint32_t memory;
      uint64_t bytes, alignment;
      turbo_status code;
    } refused[] = {{TURBO_MEMORY_DEVICE, 1, 1, TURBO_UNSUPPORTED},
                   {TURBO_MEMORY_HOST, 1, 3, TURBO_INVALID_ARGUMENT},
                   {TURBO_MEMORY_HOST, 1, 0, TURBO_INVALID_ARGUMENT},
                   {TURBO_MEMORY_HOST, 1, 4 << 20, TURBO_INVALID_ARGUMENT},
                   {TURBO_MEMORY_HOST, UINT64_MAX, 64, TURBO_RESOURCE_EXHAUSTED}};
    for (const auto& r : refused) {
      error = fresh_error();
      EXPECT_EQ(alloc->allocate(alloc->ctx, r.memory, r.bytes, r.alignment, "x", &error), nullptr);
      EXPECT_EQ(error.code, r.code) << r.bytes << " " << r.alignment;
      EXPECT_NE(error.message[0], '\0');
    }
  }
  EXPECT_EQ(log.count("were not released"), 2);  // b and c
  EXPECT_TRUE(tags->bytes_by_tag().empty());
}

TEST(Host, AccountedMemoryIsSummedBesideAllocatedAndNeverNegative) {
  auto tags = std::make_shared<MemoryTags>();
  CapturedLog log;
  {
    ComponentHost host({.label = "t", .services = {.log = log.logger(), .memory = tags}});
    const auto* alloc = service<turbo_host_alloc>(host, TURBO_HOST_ALLOC);
    ASSERT_GE(alloc->struct_size, offsetof(turbo_host_alloc, account) + sizeof alloc->account);
    void* block = alloc->allocate(alloc->ctx, TURBO_MEMORY_HOST, 64, 64, "kv", nullptr);
    alloc->account(alloc->ctx, TURBO_MEMORY_DEVICE, "kv", 1000);
    alloc->account(alloc->ctx, TURBO_MEMORY_PINNED, "kv", 100);
    EXPECT_EQ(tags->bytes_by_tag().at("kv"), 1164u);
    alloc->account(alloc->ctx, TURBO_MEMORY_DEVICE, "kv", -400);
    EXPECT_EQ(tags->bytes_by_tag().at("kv"), 764u);
    EXPECT_EQ(log.count("account"), 0);
    // More than was counted under this memory: what others hold stays.
    alloc->account(alloc->ctx, TURBO_MEMORY_PINNED, "kv", -101);
    EXPECT_EQ(tags->bytes_by_tag().at("kv"), 664u);
    alloc->account(alloc->ctx, TURBO_MEMORY_DEVICE, "other", INT64_MIN);
    EXPECT_EQ(tags->bytes_by_tag().count("other"), 0u);
    EXPECT_EQ(log.count("are impossible"), 2);
    alloc->account(alloc->ctx, TURBO_MEMORY_DEVICE, nullptr, 5);
    alloc->account(nullptr, TURBO_MEMORY_DEVICE, "kv", 5);
    alloc->release(alloc->ctx, block);
    EXPECT_EQ(tags->bytes_by_tag().at("kv"), 600u);
  }
  EXPECT_EQ(log.count("600 bytes of 'kv' are still accounted for"), 1);
  EXPECT_TRUE(tags->bytes_by_tag().empty());
}

TEST(Host, WorkersAreJoinedAndNoneStartsAfterStop) {
  std::atomic<int> ran{0};
  ComponentHost host({.label = "t", .compute_threads = 3});
  const auto* threads = service<turbo_host_threads>(host, TURBO_HOST_THREADS);
  EXPECT_EQ(threads->compute_threads, 3u);
  const auto work = [](void* argument) { ++*static_cast<std::atomic<int>*>(argument); };
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(threads->spawn(threads->ctx, "a worker with a long name", work, &ran, nullptr), TURBO_OK);
  const auto thrower = [](void*) { throw 1; };
  EXPECT_EQ(threads->spawn(threads->ctx, "thrower", thrower, nullptr, nullptr), TURBO_OK);
  EXPECT_EQ(threads->stopping(threads->ctx), 0u);
  host.begin_stop();
  EXPECT_EQ(threads->stopping(threads->ctx), 1u);
  EXPECT_TRUE(host.join_workers());
  EXPECT_EQ(ran, 4);
  turbo_error error = fresh_error();
  EXPECT_EQ(threads->spawn(threads->ctx, "late", work, &ran, &error), TURBO_CANCELLED);
  EXPECT_TRUE(contains(error.message, "being stopped"));
  EXPECT_EQ(threads->spawn(threads->ctx, "null", nullptr, nullptr, nullptr), TURBO_INVALID_ARGUMENT);
}

TEST(Host, WorkerCountIsBounded) {
  ComponentHost host({.label = "t"});
  const auto* threads = service<turbo_host_threads>(host, TURBO_HOST_THREADS);
  turbo_status status = TURBO_OK;
  int started = 0;
  for (; started < 1000 && status == TURBO_OK; ++started)
    status = threads->spawn(
        threads->ctx, "w", [](void*) {}, nullptr, nullptr);
  EXPECT_EQ(status, TURBO_RESOURCE_EXHAUSTED);
  host.begin_stop();
  EXPECT_TRUE(host.join_workers());
}

TEST(Host, WorkerThatDoesNotEndIsReported) {
  CapturedLog log;
  std::atomic<bool> release{false};
  ComponentHost host(
      {.label = "t", .services = {.log = log.logger(), .worker_join_limit = std::chrono::milliseconds(20)}});
  const auto* threads = service<turbo_host_threads>(host, TURBO_HOST_THREADS);
  const auto stubborn = [](void* argument) { static_cast<std::atomic<bool>*>(argument)->wait(false); };
  ASSERT_EQ(threads->spawn(threads->ctx, "stubborn", stubborn, &release, nullptr), TURBO_OK);
  host.begin_stop();
  EXPECT_FALSE(host.join_workers());
  EXPECT_EQ(log.count("did not end within 20 ms"), 1);
  release = true;
  release.notify_all();
}

TEST(Host, MetricsReachTheSink) {
  RecordingSink sink;
  CapturedLog log;
  ComponentHost host({.label = "org.example/mine", .services = {.log = log.logger(), .metrics = &sink}});
  const auto* metrics = service<turbo_host_metrics>(host, TURBO_HOST_METRICS);
  metrics->counter_add(metrics->ctx, "drafts", 2);
  metrics->gauge_set(metrics->ctx, "depth", 1.5);
  metrics->gauge_set(metrics->ctx, "Bad Name", 1);
  metrics->gauge_set(metrics->ctx, nullptr, 1);
  EXPECT_EQ(sink.seen,
            (std::vector<std::string>{"counter org.example/mine drafts 2", "gauge org.example/mine depth 1.5"}));
  EXPECT_EQ(log.count("Bad Name"), 1);
}

TEST(Host, FilesAreThoseTheProfileNames) {
  const TempFolder folder;
  write_file(folder.path() / "draft" / "model.bin", "0123456789");
  write_file(folder.path() / "other.bin", "secret");
  write_file(folder.path() / "map.bin", "map");
  std::filesystem::create_symlink(folder.path() / "other.bin", folder.path() / "draft" / "link");
  ComponentHost host(
      {.label = "t", .options = {{"map", (folder.path() / "map.bin").string()}}, .files = {folder.path() / "draft"}});
  const auto* file = service<turbo_host_file>(host, TURBO_HOST_FILE);
  const std::string model = (folder.path() / "draft" / "model.bin").string();
  uint64_t bytes = 0;
  char text[16] = {};
  EXPECT_EQ(file->size(file->ctx, model.c_str(), &bytes, nullptr), TURBO_OK);
  EXPECT_EQ(bytes, 10u);
  EXPECT_EQ(file->read(file->ctx, model.c_str(), 4, text, 6, nullptr), TURBO_OK);
  EXPECT_STREQ(text, "456789");
  EXPECT_EQ(file->size(file->ctx, (folder.path() / "map.bin").c_str(), &bytes, nullptr), TURBO_OK);
  turbo_error error = fresh_error();
  EXPECT_EQ(file->read(file->ctx, model.c_str(), 5, text, 6, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.message, "the file has 10"));
  EXPECT_EQ(file->read(file->ctx, model.c_str(), UINT64_MAX, text, 2, nullptr), TURBO_INVALID_ARGUMENT);
  const std::string outside[] = {(folder.path() / "other.bin").string(),
                                 (folder.path() / "draft" / ".." / "other.bin").string(),
                                 (folder.path() / "draft" / "link").string(), "/etc/passwd"};
  for (const std::string& path : outside) {
    error = fresh_error();
    EXPECT_EQ(file->size(file->ctx, path.c_str(), &bytes, &error), TURBO_INVALID_ARGUMENT) << path;
    EXPECT_TRUE(contains(error.message, "does not name this file"));
  }
  EXPECT_EQ(file->size(file->ctx, (folder.path() / "draft" / "absent").c_str(), &bytes, nullptr), TURBO_NOT_FOUND);
  EXPECT_EQ(file->size(file->ctx, (folder.path() / "draft").c_str(), &bytes, nullptr), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(file->size(file->ctx, nullptr, &bytes, nullptr), TURBO_INVALID_ARGUMENT);
}

TEST(Host, ThreadCheckAsksTheCaller) {
  bool on_engine = true;
  ComponentHost host({.label = "t", .services = {.on_engine_thread = [&] { return on_engine; }}});
  const auto* check = service<turbo_host_thread_check>(host, TURBO_HOST_THREAD_CHECK);
  EXPECT_EQ(check->on_engine_thread(check->ctx), 1u);
  on_engine = false;
  EXPECT_EQ(check->on_engine_thread(check->ctx), 0u);
}

TEST(Host, ModelComesFromTheProvider) {
  FakeModel provider;
  ComponentHost host({.label = "t", .services = {.model = &provider}});
  const auto* model = service<turbo_host_model>(host, TURBO_HOST_MODEL);
  EXPECT_STREQ(model->facts(model->ctx)->architecture, "qwen3");
  turbo_view view{};
  turbo_error error = fresh_error();
  EXPECT_EQ(model->tensor(model->ctx, "output.weight", &view, &error), TURBO_OK);
  EXPECT_EQ(view.shape[0], 7u);
  EXPECT_EQ(model->tensor(model->ctx, "absent", &view, &error), TURBO_NOT_FOUND);
  EXPECT_TRUE(contains(error.message, "tensor 'absent'"));
  int32_t ids[2];
  uint64_t n = 2;
  EXPECT_EQ(model->encode(model->ctx, "abc", 3, ids, &n), TURBO_RESOURCE_EXHAUSTED);
  EXPECT_EQ(n, 3u);
  n = 2;
  EXPECT_EQ(model->encode(model->ctx, "ab", 2, ids, &n), TURBO_OK);
  EXPECT_EQ(ids[1], 5);
  const char* bytes = nullptr;
  EXPECT_EQ(model->token_bytes(model->ctx, 5, &bytes, &n), TURBO_OK);
  EXPECT_EQ(std::string(bytes, n), "abc");
  EXPECT_EQ(model->token_bytes(model->ctx, 6, &bytes, &n), TURBO_NOT_FOUND);
}

TEST(Host, RegistryAndProgramAreHandedOver) {
  Registry registry;
  int format = 0, codec = 0;
  registry.weight_formats[41] = {&format, &codec};
  registry.kv_codecs[TURBO_KV_SIDE_V] = {&codec, &format};
  registry.layer_codecs[TURBO_KV_SIDE_V][3] = {&format, &codec};
  const turbo_host_program* program = nullptr;
  ComponentHost host({.label = "t", .registry = &registry, .program = &program});
  const auto* table = service<turbo_host_registry>(host, TURBO_HOST_REGISTRY_DRAFT);
  const turbo_weight_format* found = nullptr;
  const turbo_kv_codec* side = nullptr;
  void* instance = nullptr;
  turbo_error error = fresh_error();
  EXPECT_EQ(table->weight_format(table->ctx, 41, &found, &instance, &error), TURBO_OK);
  EXPECT_EQ(instance, &codec);
  EXPECT_EQ(table->weight_format(table->ctx, 17, &found, &instance, &error), TURBO_UNSUPPORTED);
  EXPECT_TRUE(contains(error.message, "GGUF type 17"));
  EXPECT_EQ(table->kv_codec(table->ctx, TURBO_KV_SIDE_V, 0, &side, &instance, &error), TURBO_OK);
  EXPECT_EQ(instance, &format);
  EXPECT_EQ(table->kv_codec(table->ctx, TURBO_KV_SIDE_V, 3, &side, &instance, &error), TURBO_OK);
  EXPECT_EQ(instance, &codec) << "layer 3 has a codec of its own";
  EXPECT_EQ(table->kv_codec(table->ctx, TURBO_KV_SIDE_K, 0, &side, &instance, &error), TURBO_UNSUPPORTED);
  EXPECT_EQ(table->kv_codec(table->ctx, 7, 0, &side, &instance, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(table->interface(table->ctx, &codec, "more/1"), nullptr);
  registry.interface = [&](const void* of, const char* id) -> const void* { return of == &codec && std::string(id) == "more/1" ? &format : nullptr; };
  EXPECT_EQ(table->interface(table->ctx, &codec, "more/1"), &format);
  EXPECT_EQ(table->interface(table->ctx, &codec, "less/1"), nullptr);
  EXPECT_EQ(table->interface(table->ctx, &format, "more/1"), nullptr);
  EXPECT_EQ(table->interface(table->ctx, &codec, nullptr), nullptr);
  EXPECT_EQ(service<void>(host, TURBO_HOST_PROGRAM_DRAFT), nullptr);
  turbo_host_program given{};
  program = &given;
  EXPECT_EQ(service<void>(host, TURBO_HOST_PROGRAM_DRAFT), &given);
}

}  // namespace
}  // namespace turbo::loader
