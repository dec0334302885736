// Which inputs of a model's matrices matter, measured on a text.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/quantize.h"

namespace adder {

struct CalibrationOptions {
  int threads = 0;                                // 0: one per CPU that this process may use
  const std::atomic<bool>* cancel = nullptr;      // as in QuantizeOptions
  std::function<void(int64_t done)> on_progress;  // tokens; may be empty
};

// Runs `tokens` through the model as one sequence. For every matrix of a product the result holds,
// per input column, the mean square of what the column was multiplied with: the squared error of an
// output is the sum of these times the squared errors of the weights, as far as columns are
// independent. A hundredth of the mean over the columns is added, so that a column which this text
// left idle is not given up. A tied embedding is counted as the head.
// Throws Error(kBadInput) for fewer than 2 tokens, ids outside the vocabulary and values that are
// not finite.
Importance calibrate(const std::shared_ptr<const Checkpoint>& source,
                     std::span<const int32_t> tokens, const CalibrationOptions& options);

}  // namespace adder
