// Sampling: one thread block per row.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/sample/sample_row.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

__global__ void __launch_bounds__(kSampleMaxWarps* kWarpSize) sample_kernel(SampleBatch p) {
  const int64_t i = blockIdx.x;
  const SampleBatch::Row& row = p.rows[i];
  RowSampler sampler(p.logits + i * p.logits_row, p.vocab_limit, row.params,
                     {p.recent + row.recent_first, 0, row.recent_count, row.recent_count},
                     p.penalised + i * sample_words(p.vocab_limit));
  const SampledToken token = sampler.sample();
  if (threadIdx.x == 0) p.out[i] = token;
}

}  // namespace

int sample_threads(int64_t vocab_limit) {
  return vocab_limit <= kSampleFew ? kWarpSize : kSampleMaxWarps * kWarpSize;
}

size_t sample_shared_bytes() {
  return sizeof(SampleShared);
}

void sample_rows(Device& device, int64_t rows, const SampleBatch& batch) {
  launch(device, sample_kernel,
         {blocks(rows), dim3(static_cast<unsigned>(sample_threads(batch.vocab_limit))),
          sample_shared_bytes()},
         batch);
}

}  // namespace adder::ADDER_CUDA_NS
