#include "team.h"

#include <turbo/plugin.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <system_error>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

namespace turbo::arch_cpu {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The process's control group (version 2) and its parents, innermost first.
std::vector<std::string> control_groups() {
  std::ifstream file("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(file, line))
    if (line.rfind("0::", 0) == 0) path = line.substr(3);
  std::vector<std::string> folders;
  while (!path.empty() && path != "/") {
    folders.push_back("/sys/fs/cgroup" + path);
    path.erase(path.find_last_of('/'));
  }
  folders.push_back("/sys/fs/cgroup");
  return folders;
}

double quota_cpus() {
  double least = 1e9;
  for (const std::string& folder : control_groups()) {
    std::istringstream line(first_line(folder + "/cpu.max"));
    double quota, period;
    if (line >> quota >> period && quota > 0 && period > 0) least = std::min(least, quota / period);
  }
  const double quota = std::atof(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").c_str());
  const double period = std::atof(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us").c_str());
  if (quota > 0 && period > 0) least = std::min(least, quota / period);
  return least;
}

// Process-wide signals belong to the host's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

uint32_t available_cpus() {
  uint32_t n = std::max(1u, std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
#endif
  const double quota = quota_cpus();
  if (quota < n) n = std::max(1u, static_cast<uint32_t>(quota + 0.5));
  return n;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown CPU";
}

uint64_t usable_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  uint64_t bytes = pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : 0;
  for (const std::string& folder : control_groups()) {
    std::istringstream line(first_line(folder + "/memory.max"));
    uint64_t limit;
    if (line >> limit && limit > 0 && limit < bytes) bytes = limit;
  }
  return bytes;
}

ThreadTeam::ThreadTeam(uint32_t n_threads) : size_(std::clamp(n_threads, 1u, 0xffffu)), pace_(size_) {
  // With more threads than CPUs, the one waited for may need the waiter's CPU: hardly spin.
  const bool crowded = size_ > available_cpus();
  barrier_spin_ns_ = crowded ? 1'000 : 50'000;
  idle_spin_ns_ = crowded ? 1'000 : 200'000;
  const SignalsBlocked blocked;
  try {
    workers_.reserve(size_ - 1);
    for (uint32_t member = 1; member < size_; ++member) {
      workers_.emplace_back([this, member] { work(member); });
      char name[24];
      std::snprintf(name, sizeof name, "turbo-cpu-%u", member);
#if defined(__linux__)
      pthread_setname_np(workers_.back().native_handle(), name);
#endif
    }
  } catch (const std::system_error& refused) {
    const size_t started = workers_.size();
    stop();
    throw Failure(TURBO_RESOURCE_EXHAUSTED,
                  "CPU threads: the system started " + std::to_string(started + 1) + " of " + std::to_string(n_threads) + ": " + refused.what(),
                  "lower the option 'threads' or raise the limit on processes");
  }
}

void ThreadTeam::work(uint32_t member) {
  bool took_part = true;
  for (uint32_t seen = 0;;) {
    start_.wait_while(seen, took_part ? idle_spin_ns_ : 0);  // who is left out gives its CPU away at once
    seen = start_.value();
    took_part = member < (seen & 0xffff);
    if (!took_part) continue;
    if (stopping_) return;
    body_(context_, member);
    wait_for_all();  // not counted as a stall: the next run may have begun
  }
}

uint64_t ThreadTeam::run(Body body, void* context, uint32_t n_members) {
  members_ = std::clamp(n_members, 1u, size_);
  if (members_ == 1) {
    body(context, 0);
    return 0;
  }
  body_ = body;
  context_ = context;
  stalled_ns_.store(0, std::memory_order_relaxed);
  begin(members_);
  body(context, 0);
  barrier();
  return stalled_ns_.load(std::memory_order_relaxed) / (members_ - 1);
}

void ThreadTeam::begin(uint32_t n_members) { start_.set_and_wake(((start_.value() >> 16) + 1) << 16 | n_members); }

void ThreadTeam::stop() {
  if (!workers_.empty()) {
    stopping_ = true;
    begin(size_);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }
  size_ = 1;
}

}  // namespace turbo::arch_cpu
