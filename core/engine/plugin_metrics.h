// What plugins count, as Prometheus families turbo_plugin_NAME{plugin,component}. Any thread.
//
// Plugins are not trusted with memory or with other names: the number of series is bounded, a name has one kind, and
// those of turbo itself are taken. What is refused is logged once.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "loader/host.h"

namespace turbo::engine {

class PluginMetrics : public loader::MetricsSink {
 public:
  static constexpr size_t kMaxSeries = 256;

  /// `component` is "plugin id/component name", `name` of [a-z_]. Counters get "_total"; they never fall.
  void counter_add(const std::string& component, const std::string& name, double value) override;
  void gauge_set(const std::string& component, const std::string& name, double value) override;
  std::vector<prometheus::MetricFamily> collect() const;

 private:
  struct Family {
    prometheus::MetricType type;
    std::map<std::string, double> series;  // by component
  };
  double* find(const std::string& component, const std::string& full_name, prometheus::MetricType type);

  mutable std::mutex mutex_;
  std::map<std::string, Family> families_;
  size_t n_series_ = 0;
  bool warned_ = false;
};

}  // namespace turbo::engine
