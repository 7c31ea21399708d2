// The service tables of one host. Private to the loader.
#pragma once

#include "loader/host.h"

namespace turbo::loader {

struct ComponentHost::Tables {
  turbo_host_log log;
  turbo_host_alloc alloc;
  turbo_host_config config;
  turbo_host_clock clock;
  turbo_host_threads threads;
  turbo_host_metrics metrics;
  turbo_host_file file;
  turbo_host_thread_check thread_check;
  turbo_host_model model;
  turbo_host_registry registry;
  turbo_host_drafters drafters;
};

/// Status -> the ABI's error out-parameter (null allowed); returns the code.
turbo_status fill_abi_error(turbo_error* error, const Status& status);

}  // namespace turbo::loader
