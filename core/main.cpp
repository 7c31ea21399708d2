#include "cli/commands.h"
#include "cli/signals.h"
#include "loader/probe.h"

int main(int argc, char** argv) {
  // Unknown plugins are probed by a child of this executable.
  if (const auto code = turbo::loader::run_if_probe_child(argc, argv)) return *code;
  turbo::cli::hold_signals();
  return turbo::cli::run_command_line(argc, argv);
}
