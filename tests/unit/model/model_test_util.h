// Shared checks of the model tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gguf_writer.h"
#include "model/files/model_file.h"

namespace turbo::model::testing {

inline Status open_status(const std::string& bytes, const std::string& name = "t.gguf") {
  return ModelFile::open_memory(name, as_bytes(bytes)).status();
}

/// The status failed with this code, and its message begins with the file's name and holds every part.
inline void expect_failure(const Status& status, Code code, std::initializer_list<std::string_view> parts,
                           std::string_view file = "t.gguf") {
  ASSERT_FALSE(status.is_ok()) << "accepted; expected: " << *parts.begin();
  EXPECT_EQ(code_name(status.code()), std::string(code_name(code))) << status.message();
  EXPECT_TRUE(std::string_view(status.message()).starts_with(file)) << status.message();
  for (std::string_view part : parts)
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message() << "\n  lacks " << part;
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
}

}  // namespace turbo::model::testing
