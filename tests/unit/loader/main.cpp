// The loader starts this program again to probe plugins, so main looks for that first.
#include <gtest/gtest.h>

#include "loader/probe.h"

int main(int argc, char** argv) {
  if (const auto status = turbo::loader::run_if_probe_child(argc, argv)) return *status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
