// What a plugin does to the probe child beside answering. Private to the loader; the child's one thread.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <optional>
#include <string>

namespace turbo::loader {

/// Takes over standard input, output and error of the child and notes its working directory, so that what would have
/// disturbed turbo itself is seen here first.
class ProcessWatch {
 public:
  ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;

  /// What was done since the start or the last call, as the end of a sentence ("left a process behind"); empty when
  /// nothing was. Puts things right again, so that the next component is not blamed. A copy of the process that a
  /// plugin forked off ends here.
  std::string misdeed();

 private:
  void take_over();
  std::string printed();

  pid_t own_pid_;
  int folder_fd_ = -1;  // of the working directory
  int printed_fd_ = -1;
  std::array<std::optional<struct stat>, 3> standard_;
};

}  // namespace turbo::loader
