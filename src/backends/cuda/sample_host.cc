// The host's part of sampling: parameters to the device, ids and errors back.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/cuda/ops.h"
#include "backends/cuda/sample/sample_params.h"
#include "core/error.h"

namespace adder::ADDER_CUDA_NS {

void sample(CudaContext& context, const SampleArgs& a) {
  const size_t rows = a.params.size();
  if (rows == 0) return;
  ADDER_CHECK(a.vocab_limit <= std::numeric_limits<int32_t>::max(),
              "sample: vocab_limit: expected at most {}, got {}",
              std::numeric_limits<int32_t>::max(), a.vocab_limit);
  // Rows, then the recent ids of all of them. Kept between calls: once per token.
  thread_local std::vector<SampleBatch::Row> described;
  thread_local std::vector<int32_t> recent;
  thread_local std::vector<std::byte> packed;
  thread_local std::vector<SampledToken> sampled;
  described.clear();
  recent.clear();
  for (const SampleParams& p : a.params) {
    const bool penalises = p.repeat_penalty != 1.0f;
    described.push_back({{p.temperature, p.top_p, p.min_p, p.repeat_penalty, p.uniform, p.top_k},
                         static_cast<int32_t>(recent.size()),
                         penalises ? static_cast<int32_t>(p.recent.size()) : 0});
    if (penalises) recent.insert(recent.end(), p.recent.begin(), p.recent.end());
  }
  const size_t row_part = rows * sizeof described[0], id_part = recent.size() * sizeof recent[0];
  packed.resize(row_part + id_part);
  std::memcpy(packed.data(), described.data(), row_part);
  if (id_part > 0) std::memcpy(packed.data() + row_part, recent.data(), id_part);

  const auto* uploaded =
      static_cast<const std::byte*>(context.upload(packed.data(), packed.size()));
  const size_t out_bytes = rows * sizeof(SampledToken);
  const size_t mark_bytes =
      recent.empty() ? 0 : rows * static_cast<size_t>(sample_words(a.vocab_limit)) * 4;
  auto* memory = static_cast<std::byte*>(context.scratch(out_bytes + mark_bytes));
  auto* out = reinterpret_cast<SampledToken*>(memory);
  sample_rows(context.device, static_cast<int64_t>(rows),
              {a.logits.ptr<const float>(), a.logits.stride[0], static_cast<int32_t>(a.vocab_limit),
               reinterpret_cast<const SampleBatch::Row*>(uploaded),
               reinterpret_cast<const int32_t*>(uploaded + row_part),
               reinterpret_cast<uint32_t*>(memory + out_bytes), out});
  sampled.resize(rows);
  context.device.download(sampled.data(), out, out_bytes);
  for (size_t row = 0; row < rows; ++row) {
    if (!std::isfinite(sampled[row].largest))
      fail(ErrorCode::kInternal, "sample: row {}: expected a finite largest logit, got {}", row,
           sampled[row].largest);
    a.out[row] = sampled[row].id;
  }
}

}  // namespace adder::ADDER_CUDA_NS
