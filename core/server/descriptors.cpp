#include "server/descriptors.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>

namespace turbo::server {
namespace {

// Standard streams, event queues, models, saved prefixes, and the connection that is told that there are too many.
constexpr rlim_t kOthers = 64;

}  // namespace

uint32_t affordable_connections(uint32_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const rlim_t needed = rlim_t{wanted} + kOthers;
  if (limit.rlim_cur < needed) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max == RLIM_INFINITY ? needed : std::min(needed, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur >= needed) return wanted;
  // Half of a very small limit is still worth serving with.
  const rlim_t fit = std::max(limit.rlim_cur > 2 * kOthers ? limit.rlim_cur - kOthers : limit.rlim_cur / 2, rlim_t{1});
  const uint32_t affordable = static_cast<uint32_t>(std::min<rlim_t>(fit, wanted));
  spdlog::warn("server.max_connections: {} instead of {}, since this process may have only {} files open: raise the limit (ulimit -n) or lower the setting",
               affordable, wanted, limit.rlim_cur);
  return affordable;
}

}  // namespace turbo::server
