// One live component: created, perhaps started, and taken down in the right order.
// [load] only, apart from the calls of its interface table.
#pragma once

#include <turbo/abi/plugin.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "loader/host.h"

namespace turbo::loader {

class Instance {
 public:
  /// Checks the interface table, then creates. `what` names the component in messages.
  static Result<std::unique_ptr<Instance>> create(const turbo_component& component, ComponentHost::Settings settings,
                                                  std::string what);

  /// stop, join the workers, destroy. An instance whose workers do not end is left alone for good, and the log says so.
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  Status start();
  void stop();

  /// After stop: a worker of it has not ended and may still run.
  bool stuck() const { return stuck_; }

  const void* table() const { return table_; }
  void* self() const { return self_; }
  const std::string& what() const { return what_; }

 private:
  Instance(const turbo_component& component, std::string what) : component_(component), what_(std::move(what)) {}

  const turbo_component& component_;
  std::string what_;
  std::unique_ptr<ComponentHost> host_;
  const void* table_ = nullptr;
  void* self_ = nullptr;
  bool started_ = false;
  bool stopped_ = false;
  bool stuck_ = false;
};

}  // namespace turbo::loader
