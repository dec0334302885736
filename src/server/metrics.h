// What the server counts, as Prometheus reads it.
//
// The text format is written here and not by prometheus-cpp: of that library only the serializer
// would be used (the engine keeps most numbers itself), and its Debian package depends on a web
// server and its daemon.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace adder {

// Counts of values in buckets. For any thread.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // ascending upper bounds
  void observe(double value);

  struct Snapshot {
    std::vector<double> bounds;
    std::vector<uint64_t> cumulative;  // of each bound, and of all values last
    double sum = 0;
  };
  Snapshot snapshot() const;

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

// What is read from elsewhere when somebody asks.
struct MetricsSources {
  SchedulerStats scheduler;
  uint64_t connections = 0, connections_total = 0, connections_refused = 0;
  std::string model;
};

class ServerMetrics {
 public:
  ServerMetrics();

  // route: one of few names, never a path from outside.
  void count_request(std::string_view route, int status, double seconds);
  Histogram first_token, between_tokens;  // seconds

  std::string text(const MetricsSources& sources) const;

 private:
  Histogram request_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t, std::less<>> requests_;
};

// Of this process, 0 where the system does not say.
uint64_t resident_bytes();

}  // namespace adder
