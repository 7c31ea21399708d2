#include "loader/instance.h"

#include <cstring>
#include <utility>

#include "loader/library.h"

namespace turbo::loader {

Result<std::unique_ptr<Instance>> Instance::create(const turbo_component& component, ComponentHost::Settings settings,
                                                   std::string what) {
  std::unique_ptr<Instance> instance(new Instance(component, std::move(what)));
  Result<const void*> table = checked_interface(component);
  if (!table) return table.status().with_context(instance->what_);
  instance->table_ = *table;
  instance->host_ = std::make_unique<ComponentHost>(std::move(settings));
  void* self = nullptr;
  TURBO_RETURN_IF_ERROR(call_plugin(instance->what_ + ": create", [&](turbo_error* error) {
    return component.create(instance->host_->host(), &self, error);
  }));
  if (!self) return error(Code::internal, "{}: create: answered ok without an instance", instance->what_);
  instance->self_ = self;
  return instance;
}

Status Instance::start() {
  if (started_) return Status::ok();
  if (stopped_) return error(Code::cancelled, "{}: start: it was stopped", what_);
  if (component_.start)
    TURBO_RETURN_IF_ERROR(
        call_plugin(what_ + ": start", [&](turbo_error* error) { return component_.start(self_, error); }));
  started_ = true;
  return Status::ok();
}

void Instance::stop() {
  if (!self_ || stopped_) return;
  stopped_ = true;
  host_->begin_stop();
  // An instance that spawned workers in create has them to end even when it was never started.
  if (component_.stop)
    (void)call_plugin(what_ + ": stop", [&](turbo_error*) {
      component_.stop(self_);
      return TURBO_OK;
    });
  stuck_ = !host_->join_workers();
  started_ = false;
}

// A table that a component may offer beside its interface; null when it does not.
Result<const void*> Instance::extension(const char* id, uint32_t least_bytes) const {
  const void* table = nullptr;
  TURBO_RETURN_IF_ERROR(call_plugin(what_ + ": query_interface", [&](turbo_error*) {
    table = component_.query_interface(id);
    return TURBO_OK;
  }));
  uint32_t bytes = 0;
  if (table) std::memcpy(&bytes, table, sizeof bytes);
  if (table && bytes < least_bytes)
    return error(Code::unsupported, "{}: {}: struct_size: expected at least {} but found {}", what_, id, least_bytes, bytes);
  return table;
}

Result<const turbo_device*> Instance::provided_device() const {
  TURBO_ASSIGN(const void* const found, extension(TURBO_DEVICE_PROVIDER_DRAFT, sizeof(turbo_device_provider)));
  if (!found) return static_cast<const turbo_device*>(nullptr);
  const auto* provider = static_cast<const turbo_device_provider*>(found);
  if (!provider->device) return error(Code::unsupported, "{}: {}: required call is null: device", what_, TURBO_DEVICE_PROVIDER_DRAFT);
  const turbo_device* device = nullptr;
  TURBO_RETURN_IF_ERROR(call_plugin(what_ + ": device_provider", [&](turbo_error*) {
    device = provider->device(self_);
    return TURBO_OK;
  }));
  if (!device || device->struct_size < sizeof(turbo_device))
    return error(Code::internal, "{}: device_provider: answered {}", what_, device ? "a table that is too short" : "no device");
  return device;
}

Status Instance::attach(const turbo_device& device) {
  if (client_) return Status::ok();
  TURBO_ASSIGN(const void* const found, extension(TURBO_DEVICE_CLIENT_DRAFT, sizeof(turbo_device_client)));
  if (!found) return Status::ok();
  const auto* client = static_cast<const turbo_device_client*>(found);
  if (!client->attach) return error(Code::unsupported, "{}: {}: required call is null: attach", what_, TURBO_DEVICE_CLIENT_DRAFT);
  TURBO_RETURN_IF_ERROR(call_plugin(what_ + ": attach", [&](turbo_error* error) { return client->attach(self_, &device, error); }));
  client_ = client;
  return Status::ok();
}

void Instance::detach() {
  const turbo_device_client* const client = std::exchange(client_, nullptr);
  if (!client || !client->detach) return;
  (void)call_plugin(what_ + ": detach", [&](turbo_error*) {
    client->detach(self_);
    return TURBO_OK;
  });
}

Instance::~Instance() {
  if (!self_) {
    // create failed; workers it may have started still use the host.
    if (host_) {
      host_->begin_stop();
      if (!host_->join_workers()) (void)host_.release();
    }
    return;
  }
  stop();
  if (stuck_) {
    (void)host_.release();
    return;
  }
  detach();
  (void)call_plugin(what_ + ": destroy", [&](turbo_error*) {
    component_.destroy(self_);
    return TURBO_OK;
  });
}

}  // namespace turbo::loader
