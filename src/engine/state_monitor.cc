#include "engine/state_monitor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace adder {
namespace {

// Sums over values that may be anything.
struct Moments {
  double sum = 0, squares = 0;
  int64_t finite = 0, count = 0;

  void add(std::span<const std::byte> bytes) {
    count += static_cast<int64_t>(bytes.size() / sizeof(float));
    for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
      float value;
      std::memcpy(&value, bytes.data() + i, sizeof value);
      if (!std::isfinite(value)) continue;
      ++finite;
      sum += value;
      squares += static_cast<double>(value) * value;
    }
  }
  double mean_square() const { return finite == 0 ? 0 : squares / static_cast<double>(finite); }
  double variance() const {
    const double mean = finite == 0 ? 0 : sum / static_cast<double>(finite);
    return std::max(0.0, mean_square() - mean * mean);
  }
};

size_t slot_bytes(const Tensor& state) {
  return static_cast<size_t>(state.size() / state.dim(0)) * sizeof(float);
}

}  // namespace

std::vector<LayerState> measure_state(Engine& engine, const StateHandle& state) {
  StatePool& pool = engine.states();
  std::vector<std::byte> bytes(pool.snapshot_bytes());
  pool.snapshot(state, bytes);
  std::span<const std::byte> rest = bytes;
  const auto take = [&](const Tensor& t) {
    Moments m;
    m.add(rest.first(slot_bytes(t)));
    rest = rest.subspan(slot_bytes(t));
    return m;
  };
  std::vector<LayerState> layers;
  for (int64_t i = 0; i < engine.config().n_layer; ++i) {
    const Moments conv = take(pool.conv_state(i)), ssm = take(pool.ssm_state(i));
    LayerState layer;
    layer.norm = static_cast<float>(std::sqrt(ssm.mean_square()));
    layer.deviation = static_cast<float>(std::sqrt(ssm.variance()));
    layer.conv_norm = static_cast<float>(std::sqrt(conv.mean_square()));
    const auto count = static_cast<float>(conv.count + ssm.count);
    layer.non_finite =
        static_cast<float>(conv.count - conv.finite + ssm.count - ssm.finite) / count;
    layers.push_back(layer);
  }
  return layers;
}

float SequenceState::max_norm() const {
  float norm = 0;
  for (const LayerState& layer : layers) norm = std::max(norm, layer.norm);
  return norm;
}

bool SequenceState::finite() const {
  return std::all_of(layers.begin(), layers.end(),
                     [](const LayerState& layer) { return layer.non_finite == 0; });
}

const SequenceState& StateMonitor::measure(Engine& engine, uint64_t ticket, int choice,
                                           const std::string& session, const StateHandle& state,
                                           int64_t tokens) {
  SequenceState& entry = sequences_[{ticket, choice}];
  std::vector<LayerState> layers = measure_state(engine, state);
  for (size_t i = 0; i < entry.layers.size(); ++i) {
    const float before = entry.layers[i].norm;
    if (before > 0) layers[i].drift = layers[i].norm / before - 1;
  }
  entry = {ticket, choice, session, tokens, std::move(layers)};
  ++measurements_;
  return entry;
}

void StateMonitor::forget(uint64_t ticket, int choice) {
  sequences_.erase({ticket, choice});
}

std::vector<SequenceState> StateMonitor::sequences() const {
  std::vector<SequenceState> all;
  for (const auto& [key, state] : sequences_) all.push_back(state);
  return all;
}

float StateMonitor::max_norm() const {
  float norm = 0;
  for (const auto& [key, state] : sequences_) norm = std::max(norm, state.max_norm());
  return norm;
}

}  // namespace adder
