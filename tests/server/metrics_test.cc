#include "server/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace adder {
namespace {

TEST(Histogram, CountsCumulatively) {
  Histogram h({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 7.0}) h.observe(value);
  const Histogram::Snapshot s = h.snapshot();
  EXPECT_EQ(s.cumulative, (std::vector<uint64_t>{2, 3, 4}));  // a bound belongs to its bucket
  EXPECT_EQ(s.sum, 10.0);
}

TEST(Histogram, LosesNothingBetweenThreads) {
  Histogram h({1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&h] {
      for (int i = 0; i < 10'000; ++i) h.observe(2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(h.snapshot().cumulative.back(), 40'000u);
  EXPECT_EQ(h.snapshot().sum, 80'000.0);
}

// Every sample belongs to the family that was announced last, and no family comes twice.
TEST(ServerMetrics, WritesWellFormedText) {
  ServerMetrics metrics;
  metrics.count_request("/v1/models", 200, 0.01);
  metrics.count_request("/v1/models", 200, 0.02);
  metrics.count_request("other", 404, 0.01);
  metrics.first_token.observe(0.3);
  MetricsSources sources;
  sources.model = "a\"b\\c\nd";
  sources.scheduler.slots = 4;
  sources.scheduler.free_slots = 1;
  const std::string text = metrics.text(sources);

  std::istringstream lines(text);
  std::set<std::string> families;
  std::string line, family;
  while (std::getline(lines, line)) {
    ASSERT_FALSE(line.empty());
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
    } else if (!line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line.starts_with(family)) << line;
      EXPECT_NO_THROW((void)std::stod(line.substr(line.rfind(' ')))) << line;
    }
  }
  const auto has = [&text](const std::string& wanted) {
    return text.find("\n" + wanted + "\n") != std::string::npos;
  };
  EXPECT_TRUE(has(R"(adder_model_info{model="a\"b\\c d"} 1)"));
  EXPECT_TRUE(has(R"(adder_http_requests_total{route="/v1/models",status="200"} 2)"));
  EXPECT_TRUE(has(R"(adder_http_requests_total{route="other",status="404"} 1)"));
  EXPECT_TRUE(has(R"(adder_slots{state="used"} 3)"));
  EXPECT_TRUE(has(R"(adder_time_to_first_token_seconds_bucket{le="0.25"} 0)"));
  EXPECT_TRUE(has(R"(adder_time_to_first_token_seconds_bucket{le="+Inf"} 1)"));
  EXPECT_TRUE(has("adder_http_request_seconds_count 3"));
}

TEST(ServerMetrics, KnowsTheProcess) {
  EXPECT_GT(resident_bytes(), 1u << 20);
}

}  // namespace
}  // namespace adder
