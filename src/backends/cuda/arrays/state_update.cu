// Sixteen lanes share a channel: lane l has the states l, l + 16, ..., which neighbour in memory as
// a model keeps them.
#include "backends/cuda/arrays/array_ops.h"
#include "backends/cuda/arrays/numbers.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 128, kLanes = 16;

struct UpdateParams {
  ArrayView state, x, dt, z, out, A, B, C, D, dt_bias;
  const int32_t* slots;  // null: row b has slot b
  int64_t batch, nheads, headdim, dstate, group_heads;
  bool dt_softplus;
};

__global__ void state_update_kernel(UpdateParams p) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t channel = thread / kLanes;
  // No thread leaves before the sum, in which whole warps take part.
  const bool exists = channel < p.batch * p.nheads * p.headdim;
  const int64_t i = exists ? channel % p.headdim : 0;
  const int64_t h = exists ? channel / p.headdim % p.nheads : 0;
  const int64_t b = exists ? channel / p.headdim / p.nheads : 0;
  const int64_t slot = p.slots == nullptr ? b : p.slots[b];
  const bool active = exists && slot >= 0;
  float x = 0, y = 0;
  if (active) {
    x = number(p.x, b, h, i);
    float dt = number(p.dt, b, h, i) + number_or_zero(p.dt_bias, h, i);
    if (p.dt_softplus) dt = softplus(dt);
    const int64_t group = h / p.group_heads;
    const bool tied = p.A.step(2) == 0;  // one exponential for all states
    const float tied_decay = tied ? expf(dt * number(p.A, h, i, int64_t{0})) : 0.0f;
    std::byte* state = element(p.state, slot, h, i);
    for (int64_t n = lane; n < p.dstate; n += kLanes) {
      const float decay = tied ? tied_decay : expf(dt * number(p.A, h, i, n));
      std::byte* at = state + n * p.state.step(3);
      const float s =
          fmaf(decay, load_number(at, p.state.dtype), dt * number(p.B, b, group, n) * x);
      store_number(s, at, p.state.dtype);
      y = fmaf(number(p.C, b, group, n), s, y);
    }
  }
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) y += __shfl_xor_sync(kFullMask, y, lanes);
  if (!exists || lane != 0) return;
  if (active) {
    y = fmaf(number_or_zero(p.D, h, i), x, y);
    if (p.z.given) y *= silu(number(p.z, b, h, i));
  }
  store_number(active ? y : 0.0f, element(p.out, b, h, i), p.out.dtype);
}

}  // namespace

void state_update(CudaContext& context, const StateUpdateArrays& a) {
  const int64_t batch = a.x.dim(0), nheads = a.x.dim(1), headdim = a.x.dim(2);
  const auto* slots =
      a.slots.empty()
          ? nullptr
          : static_cast<const int32_t*>(context.upload(a.slots.data(), a.slots.size_bytes()));
  const int64_t channels = batch * nheads * headdim;
  launch(context.device, state_update_kernel,
         {blocks(ceil_div(channels, kThreads / kLanes)), dim3(kThreads)},
         UpdateParams{a.state, a.x, a.dt, a.z, a.out, a.A, a.B, a.C, a.D, a.dt_bias, slots, batch,
                      nheads, headdim, a.A.dim(2), nheads / a.B.dim(1), a.dt_softplus});
}

}  // namespace adder::ADDER_CUDA_NS
