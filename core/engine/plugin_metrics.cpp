#include "engine/plugin_metrics.h"

#include <spdlog/spdlog.h>

#include <cmath>

namespace turbo::engine {

using prometheus::MetricType;

// The value to change, or null when refused. Under the lock.
double* PluginMetrics::find(const std::string& component, const std::string& full_name, MetricType type) {
  const char* why = nullptr;
  const auto family = families_.find(full_name);
  if (family != families_.end() && family->second.type != type) {
    why = "it is of another kind already";
  } else if (full_name == "turbo_plugin_errors_total" || full_name == "turbo_plugin_info") {
    why = "turbo uses that name";
  } else if (family == families_.end() || !family->second.series.contains(component)) {
    if (n_series_ >= kMaxSeries) why = "there are too many";
    else ++n_series_;
  }
  if (!why) return &families_.try_emplace(full_name, Family{type, {}}).first->second.series[component];
  if (!std::exchange(warned_, true)) spdlog::warn("{}: metric {} is dropped: {}", component, full_name, why);
  return nullptr;
}

void PluginMetrics::counter_add(const std::string& component, const std::string& name, double value) {
  if (!(value >= 0) || !std::isfinite(value)) return;
  std::lock_guard lock(mutex_);
  if (double* total = find(component, "turbo_plugin_" + name + (name.ends_with("_total") ? "" : "_total"), MetricType::Counter)) *total += value;
}

void PluginMetrics::gauge_set(const std::string& component, const std::string& name, double value) {
  std::lock_guard lock(mutex_);
  if (double* now = find(component, "turbo_plugin_" + name, MetricType::Gauge)) *now = value;
}

std::vector<prometheus::MetricFamily> PluginMetrics::collect() const {
  std::lock_guard lock(mutex_);
  std::vector<prometheus::MetricFamily> out;
  for (const auto& [name, family] : families_) {
    prometheus::MetricFamily shown{name, "Counted by a plugin", family.type, {}};
    for (const auto& [component, value] : family.series) {
      const size_t cut = component.rfind('/');
      prometheus::ClientMetric metric;
      metric.label.push_back({"plugin", component.substr(0, cut)});
      if (cut != std::string::npos) metric.label.push_back({"component", component.substr(cut + 1)});
      (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
      shown.metric.push_back(std::move(metric));
    }
    out.push_back(std::move(shown));
  }
  return out;
}

}  // namespace turbo::engine
