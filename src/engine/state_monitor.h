// How the states of running sequences look: norm, spread, what is not finite, drift.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace adder {

struct LayerState {
  float norm = 0;        // root mean square of the finite values of the SSM state
  float deviation = 0;   // their standard deviation
  float conv_norm = 0;   // root mean square of the finite values of the convolution's state
  float non_finite = 0;  // share of all values that are NaN or Inf
  float drift = 0;       // norm / norm at the previous measurement - 1; 0 at the first
};

// Of the state behind the handle, layers in order. Reads all of it to the host.
std::vector<LayerState> measure_state(Engine& engine, const StateHandle& state);

struct SequenceState {
  uint64_t ticket = 0;
  int choice = 0;
  std::string session;  // empty: none
  int64_t tokens = 0;   // in the state when it was measured
  std::vector<LayerState> layers;

  float max_norm() const;
  bool finite() const;
};

// The newest measurement of each running sequence. Not thread-safe.
class StateMonitor {
 public:
  // Measures, and fills in the drift since the sequence's last measurement.
  const SequenceState& measure(Engine& engine, uint64_t ticket, int choice,
                               const std::string& session, const StateHandle& state,
                               int64_t tokens);
  void forget(uint64_t ticket, int choice);
  void count_non_finite() { ++non_finite_; }

  std::vector<SequenceState> sequences() const;
  float max_norm() const;  // over all of them
  uint64_t measurements() const { return measurements_; }
  uint64_t non_finite() const { return non_finite_; }  // sequences that ended for it

 private:
  std::map<std::pair<uint64_t, int>, SequenceState> sequences_;
  uint64_t measurements_ = 0, non_finite_ = 0;
};

}  // namespace adder
