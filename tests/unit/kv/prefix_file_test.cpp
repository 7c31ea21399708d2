// Saved prefixes are files that anyone may have changed: every byte that differs must be refused.
#include "kv/prefix_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <cstring>
#include <fstream>
#include <random>

#include "kv/prefix_tree.h"
#include "support/temp_dir.h"

namespace turbo::kv {
namespace {

using turbo::testing::TempDir;

PrefixHeader header(uint32_t n_blocks, uint32_t n_open) {
  PrefixHeader h;
  h.n_blocks = n_blocks;
  h.n_open_blocks = n_open;
  h.block_bytes = 96;
  h.open_block_bytes = 40;
  std::memset(h.fingerprint, 'a', sizeof h.fingerprint);
  return h;
}
std::vector<std::byte> block(uint32_t index, size_t n) { return std::vector<std::byte>(n, std::byte(index + 1)); }
std::vector<int32_t> tokens(uint32_t n_blocks) {
  std::vector<int32_t> all(size_t{n_blocks} * kBlock);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i * 7);
  return all;
}
Status save(const std::filesystem::path& path, uint32_t n_blocks, uint32_t n_open) {
  TURBO_ASSIGN(PrefixWriter writer, PrefixWriter::create(path, header(n_blocks, n_open), tokens(n_blocks)));
  for (uint32_t i = 0; i < n_blocks; ++i) TURBO_RETURN_IF_ERROR(writer.add_block(block(i, 96 + (i < n_open ? 40 : 0))));
  return writer.commit();
}
Status load(const std::filesystem::path& path, const PrefixHeader& expected, uint32_t max_blocks = 100) {
  TURBO_ASSIGN(PrefixReader reader, PrefixReader::open(path, expected, max_blocks));
  EXPECT_EQ(reader.tokens(), tokens(reader.header().n_blocks));
  for (uint32_t i = 0; i < reader.header().n_blocks; ++i) {
    TURBO_ASSIGN(const std::vector<std::byte> bytes, reader.next_block());
    EXPECT_EQ(bytes, block(i, bytes.size()));
  }
  return Status::ok();
}
std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}
size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST(PrefixFile, ComesBackAsItWas) {
  TempDir folder;
  const auto path = folder.path() / "p.kv";
  ASSERT_TRUE(save(path, 3, 1)) << save(path, 3, 1).message();
  EXPECT_TRUE(load(path, header(0, 1))) << load(path, header(0, 1)).message();
  EXPECT_EQ(files_in(folder.path()), 1u);
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms(0077), std::filesystem::perms::none);
}

TEST(PrefixFile, AnyChangedByteAndAnyOtherLengthIsRefused) {
  TempDir folder;
  const auto path = folder.path() / "p.kv";
  ASSERT_TRUE(save(path, 2, 1));
  const std::string good = bytes_of(path);
  const auto attempt = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return load(path, header(0, 1));
  };
  ASSERT_TRUE(attempt(good));
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    const Status status = attempt(bad);
    ASSERT_FALSE(status.is_ok()) << "byte " << at;
    ASSERT_TRUE(status.code() == Code::corrupt_input || status.code() == Code::unsupported) << status.message();
  }
  for (size_t size = 0; size < good.size(); size += 13) ASSERT_EQ(attempt(good.substr(0, size)).code(), Code::corrupt_input) << size;
  ASSERT_EQ(attempt(good + "x").code(), Code::corrupt_input);
}

TEST(PrefixFile, SizesThatWrapAreRefusedBeforeAnythingIsAllocated) {
  TempDir folder;
  const auto path = folder.path() / "p.kv";
  for (const uint32_t n : {0xffffffffu, 0x80000000u, 101u}) {
    PrefixHeader bad = header(n, 1);
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(reinterpret_cast<const char*>(&bad), sizeof bad);
    EXPECT_EQ(load(path, header(0, 1)).code(), Code::corrupt_input) << n;
  }
  PrefixHeader bad = header(2, 1);
  bad.block_bytes = uint64_t{1} << 63;
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(reinterpret_cast<const char*>(&bad), sizeof bad);
  EXPECT_EQ(load(path, header(0, 1)).code(), Code::corrupt_input);
}

TEST(PrefixFile, AGoodFileLargerThanThePoolIsNamedAsSuch) {
  TempDir folder;
  ASSERT_TRUE(save(folder.path() / "p.kv", 3, 1));
  EXPECT_TRUE(load(folder.path() / "p.kv", header(0, 1), 3));
  EXPECT_EQ(load(folder.path() / "p.kv", header(0, 1), 2).code(), Code::resource_exhausted);
}

TEST(PrefixFile, WhatAKilledWriterLeftIsRemovedAndALivingOneIsNot) {
  TempDir folder;
  const auto path = folder.path() / "p.kv";
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = PrefixWriter::create(path, header(3, 0), tokens(3));
    ::_exit(writer && writer->add_block(block(0, 96)) && files_in(folder.path()) == 1 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(files_in(folder.path()), 1u) << "left by the killed writer";
  EXPECT_EQ(std::filesystem::directory_iterator(folder.path())->path().filename().string().front(), '.');
  std::ofstream(folder.path() / ".video.part") << "another program's";
  auto living = PrefixWriter::create(path, header(1, 0), tokens(1));
  ASSERT_TRUE(living);
  ASSERT_EQ(files_in(folder.path()), 2u) << "the old one is gone";
  ASSERT_TRUE(save(folder.path() / "q.kv", 1, 0));
  EXPECT_EQ(files_in(folder.path()), 3u);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / ".video.part"));
  ASSERT_TRUE(living->add_block(block(0, 96)));
  ASSERT_TRUE(living->commit());
  EXPECT_TRUE(load(path, header(0, 0)));
}

TEST(PrefixFile, AMissingFolderIsNoMissingPrefix) {
  TempDir folder;
  EXPECT_EQ(save(folder.path() / "no" / "p.kv", 1, 0).code(), Code::internal);
}

TEST(PrefixFile, AnotherModelOrCodecIsNamedAsSuch) {
  TempDir folder;
  const auto path = folder.path() / "p.kv";
  ASSERT_TRUE(save(path, 1, 0));
  PrefixHeader other = header(0, 0);
  other.fingerprint[63] = 'b';
  const Status status = load(path, other);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("another model"), std::string::npos);
}

TEST(PrefixFile, NotAFile) {
  TempDir folder;
  EXPECT_EQ(load(folder.path() / "missing", header(0, 0)).code(), Code::not_found);
  EXPECT_EQ(load(folder.path(), header(0, 0)).code(), Code::invalid_argument);
  EXPECT_EQ(load("/dev/zero", header(0, 0)).code(), Code::invalid_argument);
  EXPECT_FALSE(save(folder.path() / "no" / "folder", 1, 0).is_ok());
}

TEST(PrefixFile, AFullDiskLeavesTheOldFileAlone) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  TempDir folder;
  const auto path = folder.path() / "p.kv";
  ASSERT_TRUE(save(path, 1, 0));
  const std::string before = bytes_of(path);
  {
    // Given up half way.
    auto writer = PrefixWriter::create(path, header(3, 0), tokens(3));
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add_block(block(0, 96)));
  }
  EXPECT_EQ(bytes_of(path), before);
  EXPECT_EQ(files_in(folder.path()), 1u);
  // A real full disk: the limit on file sizes stands in for it.
  struct rlimit old_limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  struct rlimit small {600, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = save(path, 50, 0);
  setrlimit(RLIMIT_FSIZE, &old_limit);
  signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), Code::resource_exhausted) << status.message();
  EXPECT_EQ(bytes_of(path), before);
  EXPECT_EQ(files_in(folder.path()), 1u);
}

}  // namespace turbo::kv
