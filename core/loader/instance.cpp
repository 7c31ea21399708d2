#include "loader/instance.h"

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
  (void)call_plugin(what_ + ": destroy", [&](turbo_error*) {
    component_.destroy(self_);
    return TURBO_OK;
  });
}

}  // namespace turbo::loader
