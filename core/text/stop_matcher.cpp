#include "text/stop_matcher.h"

#include <utility>

namespace turbo::text {

StopMatcher::StopMatcher(std::vector<std::string> stops)
    : stops_(std::move(stops)),
      automaton_(std::vector<std::string_view>(stops_.begin(), stops_.end()), MultiMatch::Kind::first_end) {}

StopMatcher::Out StopMatcher::push(std::string_view text) {
  if (stopped_by_ >= 0) return {{}, true, stops_[stopped_by_]};
  std::string seen = std::exchange(held_, {});
  const size_t n_held = seen.size();
  seen += text;
  for (size_t at = n_held; at < seen.size(); ++at) {
    state_ = automaton_.step(state_, static_cast<uint8_t>(seen[at]));
    const int32_t stop = automaton_.match(state_);
    if (stop < 0) continue;
    stopped_by_ = stop;
    seen.resize(at + 1 - stops_[stop].size());
    return {std::move(seen), true, stops_[stop]};
  }
  // The state's depth is exactly the longest suffix that a stop could begin with.
  const size_t n_free = seen.size() - automaton_.depth(state_);
  held_ = seen.substr(n_free);
  seen.resize(n_free);
  return {std::move(seen), false, {}};
}

std::string StopMatcher::finish() {
  state_ = MultiMatch::root;
  return std::exchange(held_, {});
}

}  // namespace turbo::text
