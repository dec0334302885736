// Whether several devices compute the same from a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace adder {

// Between float32 implementations that add in another order: what CONFORMANCE asks of logits.
struct ValidationBounds {
  double relative = 1e-5;  // of norms
  double absolute = 2e-4;  // of the largest difference
};

// How far `got` is from `want`. NaN and Inf in either make both infinite.
struct Difference {
  double relative = 0;  // |got - want| / |want|, Euclidean norms
  double absolute = 0;  // largest |got - want|
  bool within(const ValidationBounds& bounds) const {
    return relative <= bounds.relative && absolute <= bounds.absolute;
  }
};
Difference difference(std::span<const float> got, std::span<const float> want);

struct ValidationOptions {
  std::vector<std::string> devices;  // at least one; the first is what the others are held against
  std::vector<int32_t> tokens;       // the prompt, at least 2
  int64_t greedy_tokens = 64;
  int threads = 0;
  bool pin = true;
  int64_t block = 0;  // as EngineOptions::block
  ValidationBounds bounds;
  std::function<void(const std::string& what)> progress;  // may be empty
};

struct DeviceValidation {
  std::string device, description;
  // Against the first device, which has zeros here: logits of every position, and the residual
  // stream behind each layer.
  Difference logits;
  std::vector<double> layers;  // relative
  // The place of the first greedy token that differs; nothing: none does.
  std::optional<int64_t> first_other_token;
  // Against this device's own logits of the last position: the prompt in two pieces, and fed one
  // token at a time.
  Difference split, cached;
  bool passed = false;
};

// Runs the same tokens on each device, one after the other, each with a model of its own in memory.
// Throws Error(kBadInput) for no device or too few tokens, and what an engine throws.
std::vector<DeviceValidation> validate_devices(const std::shared_ptr<const Checkpoint>& checkpoint,
                                               const ValidationOptions& options);

}  // namespace adder
