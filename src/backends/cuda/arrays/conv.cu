// A thread has one output, and walks back through its taps until its sequence begins. Neighbouring
// threads take neighbours in x: steps of a channel, or channels of a step.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backends/cuda/arrays/array_ops.h"
#include "backends/cuda/arrays/numbers.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 256;

struct ConvParams {
  ArrayView x, out, weight, bias, initial, final_states;
  const int32_t *begin, *rows;  // null: a row is one sequence
  int64_t batch, dim, seqlen, width;
  bool silu, along_time;
};

// Input t of a sequence that begins at `begin`; before it come the initial states, if it is the
// first of its row.
__device__ __forceinline__ float conv_input(const ConvParams& p, int64_t b, int64_t c,
                                            int64_t begin, bool first, int64_t t) {
  if (t >= begin) return number(p.x, b, c, t);
  return first ? number_or_zero(p.initial, b, c, p.width - 1 + t - begin) : 0.0f;
}

__global__ void conv_kernel(ConvParams p) {
  int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.batch * p.dim * p.seqlen) return;
  const int64_t inner = p.along_time ? p.seqlen : p.dim, outer = p.along_time ? p.dim : p.seqlen;
  const int64_t i = index % inner, j = index / inner % outer, b = index / inner / outer;
  const int64_t c = p.along_time ? j : i, t = p.along_time ? i : j;
  const int64_t begin = p.begin == nullptr ? 0 : p.begin[b * p.seqlen + t];
  const bool first = p.rows == nullptr || begin == p.rows[b * 3];
  float sum = 0;
  if (begin >= 0) {
    sum = p.bias.given ? number(p.bias, c) : 0.0f;
    for (int64_t k = 0; k < p.width; ++k) {
      const int64_t from = t - (p.width - 1) + k;
      if (from < begin && !(first && p.initial.given)) continue;
      sum = fmaf(number(p.weight, c, k), conv_input(p, b, c, begin, first, from), sum);
    }
    if (p.silu) sum = silu(sum);
  }
  store_number(sum, element(p.out, b, c, t), p.out.dtype);
}

// The last inputs of the row's last sequence. A launch of its own: it may replace the initial
// states, which the convolution reads.
__global__ void conv_final_kernel(ConvParams p) {
  int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.batch * p.dim) return;
  const int64_t c = index % p.dim, b = index / p.dim;
  const int64_t begin = p.rows == nullptr ? 0 : p.rows[b * 3 + 1];
  const int64_t end = p.rows == nullptr ? p.seqlen : p.rows[b * 3 + 2];
  const bool first = p.rows == nullptr || begin == p.rows[b * 3];
  for (int64_t k = 0; k + 1 < p.width; ++k)
    store_number(conv_input(p, b, c, begin, first, end - (p.width - 1) + k),
                 element(p.final_states, b, c, k), p.final_states.dtype);
}

struct ConvUpdateParams {
  ArrayView x, out, state, weight, bias;
  const int32_t* slots;      // null: row b has slot b
  const int64_t* positions;  // null: not circular
  int64_t batch, dim, seqlen, width, length;
  bool silu, exact;
};

// Input i behind the last width - 1 of the state.
__device__ __forceinline__ float update_input(const ConvUpdateParams& p, const std::byte* state,
                                              int64_t start, int64_t b, int64_t c, int64_t i) {
  const int64_t history = p.width - 1;
  if (i >= history) return number(p.x, b, c, i - history);
  const int64_t at = (start + p.length - history + i) % p.length;
  return load_number(state + at * p.state.step(2), p.state.dtype);
}

__device__ __forceinline__ void keep(const ConvUpdateParams& p, const std::byte* x,
                                     std::byte* state) {
  if (p.exact) {
    copy_element(x, state, 1, static_cast<int>(dtype_size(p.x.dtype)));
  } else {
    store_number(load_number(x, p.x.dtype), state, p.state.dtype);
  }
}

// A thread has one channel of one row: the state's entries are its own.
__global__ void conv_update_kernel(ConvUpdateParams p) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.batch * p.dim) return;
  const int64_t c = index % p.dim, b = index / p.dim;
  const int64_t slot = p.slots == nullptr ? b : p.slots[b];
  if (slot < 0) {
    for (int64_t t = 0; t < p.seqlen; ++t) store_number(0.0f, element(p.out, b, c, t), p.out.dtype);
    return;
  }
  std::byte* state = element(p.state, slot, c);
  const int64_t start = p.positions == nullptr ? 0 : p.positions[b];
  const float bias = number_or_zero(p.bias, c);
  for (int64_t t = 0; t < p.seqlen; ++t) {
    float sum = bias;
    for (int64_t k = 0; k < p.width; ++k)
      sum = fmaf(number(p.weight, c, k), update_input(p, state, start, b, c, t + k), sum);
    store_number(p.silu ? silu(sum) : sum, element(p.out, b, c, t), p.out.dtype);
  }
  const int64_t step = p.state.step(2);
  if (p.positions != nullptr) {
    for (int64_t t = max(int64_t{0}, p.seqlen - p.length); t < p.seqlen; ++t)
      keep(p, element(p.x, b, c, t), state + (start + t) % p.length * step);
    return;
  }
  // Ascending order is safe: an entry comes from behind itself.
  for (int64_t j = 0; j < p.length; ++j) {
    const int64_t from = p.seqlen + j;
    if (from < p.length) {
      copy_element(state + from * step, state + j * step, 1,
                   static_cast<int>(dtype_size(p.state.dtype)));
    } else {
      keep(p, element(p.x, b, c, from - p.length), state + j * step);
    }
  }
}

}  // namespace

void conv(CudaContext& context, const ConvArrays& a) {
  ConvParams p{a.x,
               a.out,
               a.weight,
               a.bias,
               a.initial_states,
               a.final_states,
               nullptr,
               nullptr,
               a.x.dim(0),
               a.x.dim(1),
               a.x.dim(2),
               a.weight.dim(1),
               a.silu,
               std::abs(a.x.step(2)) <= std::abs(a.x.step(1))};
  if (!a.begin.empty()) {
    // One upload: the next would take the place of the first.
    std::vector<int32_t> both(a.rows.begin(), a.rows.end());
    both.insert(both.end(), a.begin.begin(), a.begin.end());
    p.rows =
        static_cast<const int32_t*>(context.upload(both.data(), both.size() * sizeof(int32_t)));
    p.begin = p.rows + a.rows.size();
  }
  launch(context.device, conv_kernel,
         {blocks(ceil_div(p.batch * p.dim * p.seqlen, kThreads)), dim3(kThreads)}, p);
  if (a.final_states)
    launch(context.device, conv_final_kernel,
           {blocks(ceil_div(p.batch * p.dim, kThreads)), dim3(kThreads)}, p);
}

void conv_update(CudaContext& context, const ConvUpdateArrays& a) {
  ConvUpdateParams p{a.x,
                     a.out,
                     a.conv_state,
                     a.weight,
                     a.bias,
                     nullptr,
                     nullptr,
                     a.x.dim(0),
                     a.x.dim(1),
                     a.x.dim(2),
                     a.weight.dim(1),
                     a.conv_state.dim(2),
                     a.silu,
                     a.x.dtype == a.conv_state.dtype};
  std::vector<int64_t> both(a.positions.begin(), a.positions.end());
  both.resize(a.positions.size() + (a.slots.size() + 1) / 2);
  if (!both.empty()) {
    std::copy(a.slots.begin(), a.slots.end(),
              reinterpret_cast<int32_t*>(both.data() + a.positions.size()));
    const auto* memory =
        static_cast<const int64_t*>(context.upload(both.data(), both.size() * sizeof(int64_t)));
    if (!a.positions.empty()) p.positions = memory;
    if (!a.slots.empty()) p.slots = reinterpret_cast<const int32_t*>(memory + a.positions.size());
  }
  launch(context.device, conv_update_kernel,
         {blocks(ceil_div(p.batch * p.dim, kThreads)), dim3(kThreads)}, p);
}

}  // namespace adder::ADDER_CUDA_NS
