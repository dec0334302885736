// What the sampling kernels take and give, in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/device.h"

namespace adder::ADDER_CUDA_NS {

// SampleParams without its recent ids.
struct SampleRow {
  float temperature, top_p, min_p, repeat_penalty, uniform;
  int32_t top_k;
};

// `count` ids of a ring of `capacity`, from position `first` on.
struct RecentIds {
  const int32_t* ids;
  int64_t first, count, capacity;
};

struct SampledToken {
  int32_t id;
  float largest;  // logit of the row; unless it is finite there is no id
};

// Threads of the block that samples a row: a warp is enough for what is compared pair by pair. The
// result does not depend on it.
int sample_threads(int64_t vocab_limit);
size_t sample_shared_bytes();
// 32-bit words that a row needs for its recent ids.
constexpr int64_t sample_words(int64_t vocab_limit) {
  return (vocab_limit + 31) / 32;
}

struct SampleBatch {
  struct Row {
    SampleRow params;
    int32_t recent_first, recent_count;  // of `recent`
  };
  const float* logits;
  int64_t logits_row;  // from one row to the next
  int32_t vocab_limit;
  const Row* rows;
  const int32_t* recent;
  uint32_t* penalised;  // sample_words() per row
  SampledToken* out;
};
void sample_rows(Device& device, int64_t rows, const SampleBatch& batch);

}  // namespace adder::ADDER_CUDA_NS
