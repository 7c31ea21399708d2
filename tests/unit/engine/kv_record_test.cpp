// Records of keys: what is written is read again, and whatever else a file may hold is refused or not used.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>

#include "engine/kv_records.h"
#include "support/temp_dir.h"

namespace turbo::engine {
namespace {

namespace fs = std::filesystem;

Sha256::Value value(int seed) {
  Sha256::Value bytes;
  bytes.fill(static_cast<std::byte>(seed));
  return bytes;
}

KvRecord example(int model = 1) {
  KvRecord record;
  record.shape = {3, 2, 4};
  record.model = value(model);
  record.conditions = value(2);
  for (uint16_t i = 0; i < 24; ++i) record.centers.push_back(static_cast<uint16_t>(0x3c00 + i));
  record.set_divergence(value(7), 0, 0.125);
  record.set_divergence(value(7), 2, 1e-9);
  record.set_divergence(value(8), 1, 0);
  return record;
}

bool same(const KvRecord& a, const KvRecord& b) { return write_record(a) == write_record(b); }

// The file with other bytes at `at`, and a digest that fits them.
template <typename T>
std::string with(std::string bytes, size_t at, T what) {
  std::memcpy(bytes.data() + at, &what, sizeof what);
  const size_t end = bytes.size() - sizeof(Sha256::Value);
  const Sha256::Value digest = Sha256().add(std::as_bytes(std::span(bytes).first(end))).finish();
  std::memcpy(bytes.data() + end, digest.data(), digest.size());
  return bytes;
}

constexpr size_t kCenters = 88, kMeasured = kCenters + 24 * 2;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

size_t n_files(const fs::path& folder) { return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {})); }

}  // namespace

TEST(KvRecord, IsReadAsWritten) {
  const KvRecord record = example();
  const Result<KvRecord> back = read_record(write_record(record));
  ASSERT_TRUE(back) << back.status().message();
  EXPECT_EQ(back->shape, record.shape);
  EXPECT_EQ(back->model, record.model);
  EXPECT_EQ(back->conditions, record.conditions);
  EXPECT_EQ(back->centers, record.centers);
  EXPECT_EQ(back->divergence(value(7), 0), 0.125);
  EXPECT_EQ(back->divergence(value(7), 1), std::nullopt);
  EXPECT_EQ(back->divergence(value(7), 2), 1e-9);
  EXPECT_EQ(back->divergence(value(8), 1), 0.0);
  EXPECT_EQ(back->divergence(value(9), 0), std::nullopt);
}

TEST(KvRecord, EveryFlippedBitAndEveryCutIsRefused) {
  const std::string bytes = write_record(example());
  for (size_t at = 0; at < bytes.size(); ++at)
    for (const int bit : {0, 7}) {
      std::string broken = bytes;
      broken[at] = static_cast<char>(broken[at] ^ (1 << bit));
      EXPECT_EQ(read_record(broken).status().code(), Code::corrupt_input) << at;
    }
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_EQ(read_record(bytes.substr(0, n)).status().code(), Code::corrupt_input) << n;
  EXPECT_EQ(read_record(bytes + '\0').status().code(), Code::corrupt_input);
}

TEST(KvRecord, SizesAndNumbersWithAFittingDigestAreRefusedToo) {
  const std::string bytes = write_record(example());
  ASSERT_TRUE(read_record(with(bytes, kCenters, uint16_t{0xc100})));
  for (const size_t field : {8, 12, 16, 20})
    for (const uint32_t n : {0u, 1u, 5u, 17u, 1u << 16, 1u << 31, UINT32_MAX})
      EXPECT_EQ(read_record(with(bytes, field, n)).status().code(), Code::corrupt_input) << field << " " << n;
  for (const uint16_t half : {0x7c00, 0xfc00, 0x7e00, 0xffff})
    EXPECT_EQ(read_record(with(bytes, kCenters + 6, half)).status().code(), Code::corrupt_input) << half;
  for (const double number : {std::nan(""), std::numeric_limits<double>::infinity(), -0.5, -2.0})
    EXPECT_EQ(read_record(with(bytes, kMeasured + 32 + 8, number)).status().code(), Code::corrupt_input) << number;
  EXPECT_EQ(read_record(with(bytes, 7, '2')).status().code(), Code::corrupt_input) << "another version";
}

TEST(KvRecord, HoldsSoManyCodecsAndNoRecordIsTooLarge) {
  KvRecord record = example();
  for (int codec = 20; codec < 60; ++codec) record.set_divergence(value(codec), 0, codec);
  EXPECT_EQ(record.measured.size(), kMaxMeasured);
  EXPECT_EQ(record.divergence(value(59), 0), 59.0);
  EXPECT_EQ(record.divergence(value(7), 0), std::nullopt);
  EXPECT_TRUE(read_record(write_record(record)));
  record.shape = {1, 1u << 12, 1u << 12};
  record.measured.clear();
  record.centers.assign(1u << 24, 0);
  EXPECT_EQ(write_record(record), "");
}

TEST(KvRecord, MergesWhatAnotherMeasured) {
  KvRecord ours = example(), theirs = example();
  theirs.set_divergence(value(7), 0, 99);
  theirs.set_divergence(value(7), 1, 0.5);
  theirs.set_divergence(value(9), 1, 0.75);
  ours.merge(theirs);
  EXPECT_EQ(ours.divergence(value(7), 0), 0.125);
  EXPECT_EQ(ours.divergence(value(7), 1), 0.5);
  EXPECT_EQ(ours.divergence(value(9), 1), 0.75);
}

TEST(KvRecords, RemembersByModelConditionsAndShape) {
  const testing::TempDir folder;
  const KvRecords records(folder.path() / "new" / "keys");
  EXPECT_FALSE(records.recall(example()));
  ASSERT_TRUE(records.remember(example()));
  const std::optional<KvRecord> back = records.recall(example());
  ASSERT_TRUE(back);
  EXPECT_TRUE(same(*back, example()));
  EXPECT_FALSE(records.recall(example(5)));
  KvRecord other = example();
  other.conditions = value(6);
  EXPECT_FALSE(records.recall(other));
  other = example();
  other.shape = {2, 3, 4};
  EXPECT_FALSE(records.recall(other));
  EXPECT_FALSE(KvRecords({}).remember(example()));
  EXPECT_FALSE(KvRecords({}).recall(example()));
}

TEST(KvRecords, WhatIsDamagedForeignOrOfOthersIsNotUsed) {
  const testing::TempDir folder;
  const KvRecords records(folder.path());
  ASSERT_TRUE(records.remember(example()));
  const fs::path path = records.path_of(example());
  const std::string good = read_file(path);
  for (const std::string& bytes : {std::string(), good.substr(0, good.size() / 2), std::string(10000, 'x'), write_record(example(5)),
                                   std::string(kMaxRecordBytes + 1, '\0')}) {
    write_file(path, bytes);
    EXPECT_FALSE(records.recall(example())) << bytes.size();
    ASSERT_TRUE(records.remember(example()));
    EXPECT_TRUE(records.recall(example()));
  }
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(records.recall(example())) << "everybody may write to it";
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(records.recall(example())) << "a pipe";
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_FALSE(records.recall(example()));
  EXPECT_FALSE(records.remember(example()));
  EXPECT_FALSE(KvRecords("/proc/no/cache").remember(example()));
  EXPECT_EQ(n_files(folder.path()), 1u) << "nothing half written is left";
}

TEST(KvRecords, TheFolderDoesNotGrowWithoutLimit) {
  const testing::TempDir folder;
  const KvRecords records(folder.path());
  write_file(folder.path() / "of somebody else.txt", "stays");
  const fs::path unfinished = records.path_of(example(200)).string() + ".AbCd12";
  write_file(unfinished, "half");
  fs::last_write_time(unfinished, fs::file_time_type::clock::now() - std::chrono::hours(2));
  for (int model = 0; model < 70; ++model) {
    ASSERT_TRUE(records.remember(example(model)));
    const auto age = std::chrono::minutes(100 - model);
    fs::last_write_time(records.path_of(example(model)), fs::file_time_type::clock::now() - age);
    EXPECT_TRUE(records.recall(example(0))) << "used each time, so never the oldest";
  }
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_EQ(n_files(folder.path()), 65u);
  EXPECT_FALSE(records.recall(example(1)));
  EXPECT_TRUE(records.recall(example(69)));
}

TEST(KvRecords, ProcessesAtOnceReadWholeRecords) {
  const testing::TempDir folder;
  const KvRecords records(folder.path());
  const auto work = [&](int codec) {
    for (int i = 0; i < 200; ++i) {
      KvRecord record = example();
      record.set_divergence(value(codec), 0, i);
      if (!records.remember(record)) return 1;
      const std::optional<KvRecord> back = records.recall(example());
      if (!back || back->centers != example().centers || back->divergence(value(7), 0) != 0.125) return 2;
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (const int codec : {30, 31, 32}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(work(codec));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(n_files(folder.path()), 1u);
}

TEST(KvRecords, ANamedFileMustFit) {
  const testing::TempDir folder;
  const fs::path path = folder.path() / "centers";
  const KvRecord record = example();
  const auto refused = [&](const KvShape& shape, const Sha256::Value& model, const char* part) {
    const Result<KvRecord> read = read_center_file(path, shape, model);
    ASSERT_FALSE(read) << part;
    EXPECT_NE(read.status().message().find("kv.options.center"), std::string::npos) << read.status().message();
    EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
    EXPECT_NE(read.status().hint(), "");
  };
  refused(record.shape, record.model, "centers");
  write_file(path, "text");
  refused(record.shape, record.model, "not a usable record");
  write_file(path, write_record(record));
  refused({3, 2, 8}, record.model, "3 layers of 2 heads of 8");
  refused(record.shape, value(9), "another model");
  const Result<KvRecord> read = read_center_file(path, record.shape, record.model);
  ASSERT_TRUE(read);
  EXPECT_TRUE(same(*read, record));
}

}  // namespace turbo::engine
