#include "engine/plugin_metrics.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <cmath>

namespace turbo::engine {
namespace {

std::string text(const PluginMetrics& metrics) { return prometheus::TextSerializer().Serialize(metrics.collect()); }

TEST(PluginMetrics, AreShownWithPrefixAndLabels) {
  PluginMetrics metrics;
  metrics.counter_add("org.example.mine/fast", "hits", 2);
  metrics.counter_add("org.example.mine/fast", "hits", 1);
  metrics.counter_add("org.example.mine/slow", "hits_total", 5);
  metrics.gauge_set("org.example.mine/fast", "depth", 7);
  metrics.gauge_set("org.example.mine/fast", "depth", 4);
  const std::string shown = text(metrics);
  EXPECT_NE(shown.find("turbo_plugin_hits_total{plugin=\"org.example.mine\",component=\"fast\"} 3"), std::string::npos) << shown;
  EXPECT_NE(shown.find("turbo_plugin_hits_total{plugin=\"org.example.mine\",component=\"slow\"} 5"), std::string::npos) << shown;
  EXPECT_NE(shown.find("turbo_plugin_depth{plugin=\"org.example.mine\",component=\"fast\"} 4"), std::string::npos) << shown;
  EXPECT_NE(shown.find("# TYPE turbo_plugin_hits_total counter"), std::string::npos);
}

TEST(PluginMetrics, CountersNeverFallAndNamesHaveOneKind) {
  PluginMetrics metrics;
  metrics.counter_add("a/b", "x", 1);
  metrics.counter_add("a/b", "x", -1);
  metrics.counter_add("a/b", "x", NAN);
  metrics.counter_add("a/b", "x", INFINITY);
  metrics.gauge_set("a/b", "x_total", 9);
  metrics.counter_add("a/b", "errors", 1);
  metrics.gauge_set("a/b", "info", 1);
  const auto families = metrics.collect();
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].metric[0].counter.value, 1);
}

TEST(PluginMetrics, AreBounded) {
  PluginMetrics metrics;
  for (char a = 'a'; a <= 'z'; ++a)
    for (char b = 'a'; b <= 'z'; ++b) metrics.gauge_set("a/b", {a, b}, 1);
  EXPECT_EQ(metrics.collect().size(), PluginMetrics::kMaxSeries);
  metrics.gauge_set("a/b", "aa", 3);
  EXPECT_EQ(metrics.collect()[0].metric[0].gauge.value, 3) << "those that are known go on";
}

}  // namespace
}  // namespace turbo::engine
