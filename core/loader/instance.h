// One live component: created, perhaps started, and taken down in the right order.
// [load] only, apart from the calls of its interface table.
#pragma once

#include <turbo/abi/draft/device.h>
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

  /// The device that an arch pack offers to kernels of other libraries; null when it offers none.
  Result<const turbo_device*> provided_device() const;
  /// Hand the pack's device to a component that is a client of one; ok when it is none, or attached already.
  Status attach(const turbo_device& device);
  /// Undo attach; the device must still live. The destructor does it too.
  void detach();
  bool attached() const { return client_ != nullptr; }

  /// After stop: a worker of it has not ended and may still run.
  bool stuck() const { return stuck_; }

  const void* table() const { return table_; }
  /// The component's answer to an interface id; tables take self().
  const void* interface(const char* id) const { return component_.query_interface(id); }
  void* self() const { return self_; }
  const std::string& what() const { return what_; }
  /// A table that the component may offer beside its interface; null when it does not.
  Result<const void*> extension(const char* id, uint32_t least_bytes) const;

 private:
  Instance(const turbo_component& component, std::string what) : component_(component), what_(std::move(what)) {}

  const turbo_component& component_;
  std::string what_;
  std::unique_ptr<ComponentHost> host_;
  const void* table_ = nullptr;
  const turbo_device_client* client_ = nullptr;  // while attached
  void* self_ = nullptr;
  bool started_ = false;
  bool stopped_ = false;
  bool stuck_ = false;
};

}  // namespace turbo::loader
