#include "server/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace adder {
namespace {

// From a quick decode step to a client that waits in the queue, in steps of about 2.
const std::vector<double> kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                      0.5,   1,      2.5,   5,    10,    30,   60,  300};

// Prometheus' text format, version 0.0.4.
class TextFormat {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    add("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Number>
  void sample(Number value, std::string_view labels = "") {
    add("{}{} {}\n", name_, labels, value);
  }
  template <typename Number>
  void one(std::string_view name, std::string_view type, std::string_view help, Number value) {
    family(name, type, help);
    sample(value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram::Snapshot& s) {
    family(name, "histogram", help);
    for (size_t i = 0; i < s.bounds.size(); ++i) {
      add("{}_bucket{{le=\"{}\"}} {}\n", name, s.bounds[i], s.cumulative[i]);
    }
    add("{}_bucket{{le=\"+Inf\"}} {}\n", name, s.cumulative.back());
    add("{}_sum {}\n{}_count {}\n", name, s.sum, name, s.cumulative.back());
  }
  std::string take() { return std::move(text_); }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  std::string text_, name_;
};

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

void add_scheduler(TextFormat& out, const SchedulerStats& s) {
  out.one("adder_prompt_tokens_total", "counter", "Tokens of prompts, cached ones included",
          s.prompt_tokens);
  out.one("adder_cached_tokens_total", "counter", "Tokens of prompts that were not processed again",
          s.cached_tokens);
  out.one("adder_generated_tokens_total", "counter", "Tokens of answers", s.generated_tokens);
  out.family("adder_generations_total", "counter", "Requests to the scheduler by how they ended");
  out.sample(s.finished, "{end=\"finished\"}");
  out.sample(s.cancelled, "{end=\"cancelled\"}");
  out.sample(s.refused, "{end=\"refused\"}");
  out.sample(s.failed, "{end=\"failed\"}");
  out.one("adder_queue_length", "gauge", "Requests that wait for slots", s.waiting);
  out.one("adder_running_requests", "gauge", "Requests that have slots", s.running);
  out.family("adder_slots", "gauge", "Sequences that can be in flight together");
  out.sample(s.slots - s.free_slots, "{state=\"used\"}");
  out.sample(s.free_slots, "{state=\"free\"}");
  out.family("adder_step_seconds", "summary", "Time of packed steps");
  out.sample(s.busy_s, "_sum");
  out.sample(s.steps, "_count");
  out.one("adder_cache_entries", "gauge", "Snapshots in the state cache", s.cache.entries);
  out.one("adder_cache_bytes", "gauge", "Bytes of the state cache", s.cache.bytes);
  out.one("adder_cache_hits_total", "counter", "Prompts that began with a cached prefix",
          s.cache.hits);
  out.one("adder_cache_misses_total", "counter", "Prompts that did not", s.cache.misses);
  out.one("adder_cache_stored_total", "counter", "Snapshots taken", s.cache.stored);
  out.one("adder_cache_evicted_total", "counter", "Snapshots dropped for newer ones",
          s.cache.evicted);
  out.one("adder_sessions", "gauge", "Named conversations", s.sessions);
  out.one("adder_session_bytes", "gauge", "Bytes of their states in memory", s.session_bytes);
  out.one("adder_state_norm_max", "gauge",
          "Largest root mean square of a layer's state over the running sequences",
          s.max_state_norm);
  out.one("adder_state_measurements_total", "counter", "Measurements of states", s.measurements);
  out.one("adder_state_non_finite_total", "counter",
          "Sequences that ended because their state was not finite", s.non_finite);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot s{bounds_, {}, sum_.load(std::memory_order_relaxed)};
  uint64_t count = 0;
  for (const auto& bucket : counts_) {
    count += bucket.load(std::memory_order_relaxed);
    s.cumulative.push_back(count);
  }
  return s;
}

ServerMetrics::ServerMetrics()
    : first_token(kSeconds), between_tokens(kSeconds), request_(kSeconds) {}

void ServerMetrics::count_request(std::string_view route, int status, double seconds) {
  request_.observe(seconds);
  const std::lock_guard lock(mutex_);
  ++requests_[{std::string(route), status}];
}

std::string ServerMetrics::text(const MetricsSources& sources) const {
  TextFormat out;
  out.family("adder_model_info", "gauge", "The model that is served");
  out.sample(1, fmt::format("{{model=\"{}\"}}", label_value(sources.model)));
  out.family("adder_http_requests_total", "counter", "HTTP requests by route and status");
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, count] : requests_) {
      out.sample(count, fmt::format("{{route=\"{}\",status=\"{}\"}}", key.first, key.second));
    }
  }
  out.histogram("adder_http_request_seconds",
                "From the first byte of a request to its answer's last", request_.snapshot());
  out.histogram("adder_time_to_first_token_seconds", "From a request to its first token",
                first_token.snapshot());
  out.histogram("adder_inter_token_seconds", "Between two tokens of an answer",
                between_tokens.snapshot());
  add_scheduler(out, sources.scheduler);
  out.one("adder_http_connections", "gauge", "Open connections", sources.connections);
  out.one("adder_http_connections_total", "counter", "Connections since the start",
          sources.connections_total);
  out.one("adder_http_connections_refused_total", "counter", "Connections beyond the limit",
          sources.connections_refused);
  out.one("process_resident_memory_bytes", "gauge", "Resident memory", resident_bytes());
  return out.take();
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return file ? resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace adder
