// Writes a model again with smaller weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace adder {

// How much an error in each column of a matrix costs, by the name of its tensor in the source: see
// quantize_row() in core/quant.h.
using Importance = std::map<std::string, std::vector<float>, std::less<>>;

struct QuantizeOptions {
  // BF16, F16, Q8_0, Q4_0 or Q4_K. Nothing converts: matrices keep their dtypes (block formats
  // become F32 outside GGUF, and so does an in_proj whose parts differ), and bytes that stay the
  // same are copied.
  std::optional<DType> type = DType::kQ8_0;
  bool llama_compatible = false;  // see PlanOptions
  int threads = 0;                // 0: one per CPU that this process may use
  Importance importance;          // may be empty; matters for Q4_0 and Q4_K
  // Set by another thread or a signal: the work stops and leaves nothing behind.
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(int64_t done, int64_t total)> on_progress;  // elements; may be empty
};

// One tensor of the output against the source's values.
struct TensorReport {
  std::string name;
  DType from = DType::kF32, to = DType::kF32;
  std::vector<int64_t> shape;
  double relative_rms = 0;  // sqrt(sum of squared errors / sum of squares), 0 for a zero tensor
  double max_error = 0;
  double bits_per_weight = 0;
};

struct QuantizeReport {
  std::vector<TensorReport> tensors;  // in file order
  uint64_t source_bytes = 0;          // of the tensors; shared data counts once
  uint64_t bytes = 0;
  std::vector<std::string> warnings;
};

// target: a path ending in .gguf; for BF16, F16 and conversions also a new or empty folder, which
// gets model.safetensors, a config and the tokenizer, in the dialect of Hugging Face when
// converting or when the source is GGUF. The source itself is refused as target. The dtype of each
// tensor is stored_dtype()'s (engine/quantize_plan.h). Needs memory for a few million elements
// whatever the size of the model. The target appears whole or not at all, and only after it was
// read back: every tensor's bytes are compared by their SHA-256, and the model's sizes with the
// source's. Throws Error(kBadInput) naming file and tensor for NaN, Inf and what the target's type
// cannot hold, and Error(kIo) for what cannot be written.
QuantizeReport quantize_model(const Checkpoint& source, const std::string& target,
                              const QuantizeOptions& options);

}  // namespace adder
