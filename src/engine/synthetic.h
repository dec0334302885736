// Models with the shapes of published ones and random weights, made in memory: speed and memory do
// not depend on the values. They stay in a range in which the recurrence behaves as in trained
// models (A_log = log(1..N), dt_bias = softplus^-1 of 0.001..0.1, as mamba_ssm initialises).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "io/checkpoint.h"
#include "model/config.h"

namespace adder {

struct SyntheticShape {
  std::string name;
  MixerKind mixer = MixerKind::kMamba1;
  int64_t n_layer = 0, d_model = 0;  // d_inner is 2 d_model, d_conv 4
  int64_t d_state = 16;              // 128 for Mamba-2, whose headdim is 64
  int64_t vocab = 0;
  bool falcon = false;  // norms on B, C and dt, and a head of its own
};

// "mamba-130m" ... "mamba-2.8b", "mamba2-130m" ... "mamba2-2.7b", "falcon-mamba-7b".
std::vector<std::string> synthetic_names();
// Throws Error(kBadInput) listing the names.
SyntheticShape synthetic_shape(std::string_view name);

// "f32", "f16", "bf16", "q8_0", "q4_0", "q4_k". Throws Error(kBadInput) listing them.
std::vector<std::string> synthetic_type_names();
DType parse_weight_type(std::string_view name);

// Bytes of all tensors of the model.
uint64_t synthetic_bytes(const SyntheticShape& shape, DType type);

// kOwn: every tensor has memory of its own. kShared: the layers share that of the first one. A
// backend that copies weights into an order of its own does the same work on both, but kShared is
// made in a fraction of the time, and the model is not in memory twice.
enum class SyntheticMemory { kOwn, kShared };

// The big matrices have `type` and the others what `adder quantize` makes of them
// (quantize_plan.h). The same arguments give the same bits every time.
Checkpoint make_synthetic(const SyntheticShape& shape, DType type,
                          SyntheticMemory memory = SyntheticMemory::kOwn);

}  // namespace adder
