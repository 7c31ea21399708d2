// Stop strings over streamed text. One per request; one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/multi_match.h"

namespace turbo::text {

/// Lets text through until a stop string is complete. Works on bytes; however the text is cut into pushes, the joined
/// output is the same. The stop that is complete first wins; of several that end together, the longest. Empty stops are
/// ignored. When pushes and stops are whole UTF-8, so is all output.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  struct Out {
    std::string text;      ///< may be sent now
    bool stopped = false;  ///< a stop is complete: nothing follows
    std::string stop;      ///< which one; never part of any text
  };
  /// Text that could begin a stop is held back until more text decides. After a stop: no text, stopped is true.
  Out push(std::string_view text);
  /// No more text: what was held back.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  MultiMatch automaton_;
  uint32_t state_ = MultiMatch::root;
  std::string held_;
  int32_t stopped_by_ = -1;
};

}  // namespace turbo::text
