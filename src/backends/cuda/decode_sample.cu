// The end of a step of the decode loop: one thread block per row chooses its token, prepares the
// next step, and finds out whether there is one.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/sample/decode_params.h"
#include "backends/cuda/sample/sample_row.cuh"
#include "core/random.h"
#include "kernels/decode_loop.h"

namespace adder::ADDER_CUDA_NS {
namespace {

// By one thread, when the others have read all of the row's state. True: the row goes on.
__device__ bool take_token(const DecodeBatch& p, DecodeRowState& row, int64_t i, int32_t id) {
  for (int32_t k = 0; k < row.n_stop_ids; ++k)
    if (row.stop_ids[k] == id) return false;
  if (--row.left == 0) return false;
  p.tokens[i] = id;
  p.recent[i * kDecodeRecent + row.n_recent++ % kDecodeRecent] = id;
  ++row.index;
  return true;
}

__global__ void __launch_bounds__(kSampleMaxWarps* kWarpSize) decode_sample_kernel(DecodeBatch p) {
  const int64_t i = blockIdx.x;
  if (p.state_slot[i] < 0) {
    if (threadIdx.x == 0) p.out[i] = kDecodeInert;
    return;
  }
  DecodeRowState& row = p.rows[i];
  SampleRow sampling = row.sampling;
  sampling.uniform = uniform_at(row.seed, row.index);
  const int64_t last_n = min(row.n_recent, int64_t{row.repeat_last_n});
  RowSampler sampler(
      p.logits + i * p.logits_row, p.vocab_limit, sampling,
      {p.recent + i * kDecodeRecent, row.n_recent - last_n, last_n, int64_t{kDecodeRecent}},
      p.penalised + i * sample_words(p.vocab_limit));
  const SampledToken token = sampler.sample();  // with barriers, before which all have read
  if (threadIdx.x != 0) return;
  const bool finite = token.largest - token.largest == 0.0f;
  p.out[i] = finite ? token.id : kDecodeNotFinite;
  if (!finite || !take_token(p, row, i, token.id)) p.state_slot[i] = -1;
}

}  // namespace

void decode_sample(Device& device, int64_t rows, const DecodeBatch& batch) {
  launch(device, decode_sample_kernel,
         {blocks(rows), dim3(static_cast<unsigned>(sample_threads(batch.vocab_limit))),
          sample_shared_bytes()},
         batch);
}

}  // namespace adder::ADDER_CUDA_NS
