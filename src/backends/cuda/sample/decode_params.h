// What the sampling kernel of the decode loop works on, all of it in device memory.
#pragma once

#include <cstdint>

#include "backends/cuda/sample/sample_params.h"

namespace adder::ADDER_CUDA_NS {

// What a row was started with, and how far it is.
struct DecodeRowState {
  SampleRow sampling;  // its `uniform` is not used
  int32_t repeat_last_n, n_stop_ids;
  const int32_t* stop_ids;
  uint64_t seed, index;  // of the next random number
  int64_t n_recent;      // ids that the ring has taken so far
  int64_t left;          // tokens
};

struct DecodeBatch {
  const float* logits;
  int64_t logits_row;
  int32_t vocab_limit;
  DecodeRowState* rows;
  int32_t* recent;      // (rows, kDecodeRecent), each row a ring
  uint32_t* penalised;  // sample_words() per row
  // (rows) each:
  int32_t* tokens;      // that the next step feeds
  int32_t* state_slot;  // of the step's batch; -1 ends the row
  int32_t* out;
};
void decode_sample(Device& device, int64_t rows, const DecodeBatch& batch);

}  // namespace adder::ADDER_CUDA_NS
