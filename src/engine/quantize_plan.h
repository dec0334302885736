// Which tensor of a model becomes what: the policy of quantization.
//
//   A, D, dt bias, convolution, norms, biases    F32 always: tiny, and the recurrence feels them
//   embedding, head, in_proj, out_proj           the type that was asked for
//   x_proj, dt_proj, Mamba-2's dt rows           the type that was asked for, but 8 bits at least
//
// A row must be whole blocks. Where it is not, Q4_K becomes Q8_0, and a block format whose rows are
// no multiple of 32 becomes F16, or F32 where a value does not fit. A model whose d_model is no
// multiple of 256 gets Q8_0 for Q4_K throughout: it is so small that the few rows which would fit
// cost much and save little (docs/numerics.md has a measurement).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/config.h"

namespace adder {

enum class TensorRole { kExact, kMatrix, kSensitive };

// The dtype of a tensor with rows of `columns` elements whose values F16 can hold.
DType stored_dtype(TensorRole role, DType asked, int64_t columns);

struct PlannedTensor {
  std::string name;  // in the output
  const StoredTensor* source = nullptr;
  int64_t first_row = 0;               // where it begins, for a part of the source's rows
  const StoredTensor* rest = nullptr;  // whose rows follow, where the source is in two parts
  std::vector<int64_t> shape;          // in the output, torch's order
  DType dtype = DType::kF32;
  float (*map)(float) = nullptr;  // what becomes of a value, if anything
};

// Whose names and shapes the output has.
enum class PlanNames : uint8_t { kGguf, kHuggingFace, kSource };

struct PlanOptions {
  // Of the matrices. Nothing: each keeps its own, but for block formats outside GGUF, which become
  // F32.
  std::optional<DType> type = DType::kQ8_0;
  PlanNames names = PlanNames::kGguf;
  // One in_proj for Mamba-2 as llama.cpp has it, its dt rows in the type of the others. Without it
  // 4-bit types leave these rows to a tensor of their own, mixer.in_proj_dt, and a GGUF file keeps
  // two parts that have no common type. Everything else gets one in_proj.
  bool llama_compatible = false;
};

// What a model gets for the type that was asked for.
DType type_for_model(DType asked, const ModelConfig& config);

// Every tensor that is written, in order. `source` must hold a model that Weights::load accepts.
std::vector<PlannedTensor> plan_tensors(const Checkpoint& source, const ModelConfig& config,
                                        const PlanOptions& options);

}  // namespace adder
