#include "measure/op_cost.h"

namespace adder {
namespace {

constexpr double kFloat = sizeof(float);
constexpr double kExp2Flops = 6;  // the shortest way: a table and three multiply-adds

double count(const Tensor& t) {
  return t ? static_cast<double>(t.size()) : 0;
}

double weight_bytes(const Tensor& t) {
  return t ? static_cast<double>(row_bytes(t.dtype, t.size())) : 0;
}

// Sequences of the batch that have a state.
double live_sequences(const PackedBatch& batch) {
  double n = 0;
  for (const int32_t slot : batch.state_slot) n += slot >= 0 ? 1 : 0;
  return n;
}

// Of all live sequences, read and written. state is (slots, ...).
double state_bytes(const Tensor& state, const PackedBatch& batch) {
  return 2 * kFloat * count(state) / static_cast<double>(state.dim(0)) * live_sequences(batch);
}

OpCost finish(OpCost cost) {
  cost.flops += kExp2Flops * cost.exp2;
  return cost;
}

}  // namespace

OpCost& OpCost::operator+=(const OpCost& other) {
  memory_bytes += other.memory_bytes;
  cache_bytes += other.cache_bytes;
  flops += other.flops;
  int8_ops += other.int8_ops;
  exp2 += other.exp2;
  return *this;
}

OpCost cost_of(const EmbeddingArgs& a) {
  OpCost c;
  c.memory_bytes = static_cast<double>(a.ids.size()) *
                   static_cast<double>(row_bytes(a.weight.dtype, a.weight.dim(1)));
  c.cache_bytes = kFloat * count(a.out);
  return c;
}

OpCost cost_of(const RmsNormArgs& a) {
  OpCost c;
  c.cache_bytes = kFloat * (count(a.x) + 2 * count(a.residual) + count(a.out));
  c.flops = (a.residual ? 5 : 4) * count(a.x);  // the sum of squares, and two products
  return c;
}

OpCost cost_of(const GatedRmsNormArgs& a) {
  OpCost c;
  c.cache_bytes = kFloat * (count(a.x) + count(a.z) + count(a.out));
  c.exp2 = count(a.x);
  c.flops = 8 * count(a.x);
  return finish(c);
}

OpCost cost_of(const MatmulArgs& a) {
  OpCost c;
  c.memory_bytes = weight_bytes(a.weight) + kFloat * count(a.bias);
  c.cache_bytes = kFloat * (count(a.x) + count(a.out));
  const double ops = 2 * static_cast<double>(a.x.dim(0)) * count(a.weight);
  (is_quantized(a.weight.dtype) ? c.int8_ops : c.flops) = ops;
  return c;
}

OpCost cost_of(const CausalConv1dArgs& a) {
  OpCost c;
  c.memory_bytes = kFloat * (count(a.weight) + count(a.bias)) + state_bytes(a.conv_state, a.batch);
  c.cache_bytes = kFloat * (count(a.x) + count(a.out));
  c.flops = 2 * static_cast<double>(a.weight.dim(0)) * count(a.x);
  if (a.silu) {
    c.exp2 = count(a.x);
    c.flops += 4 * count(a.x);
  }
  return finish(c);
}

OpCost cost_of(const SelectiveScanArgs& a) {
  OpCost c;
  const double n = count(a.u), d_state = static_cast<double>(a.B.dim(2));
  c.memory_bytes = kFloat * (count(a.A_log2e) + count(a.D) + count(a.delta_bias)) +
                   state_bytes(a.ssm_state, a.batch);
  c.cache_bytes =
      static_cast<double>(dtype_size(a.u.dtype)) *
      (count(a.u) + count(a.delta) + count(a.z) + count(a.B) + count(a.C) + count(a.out));
  // A state: dt * A, du * B, and two multiply-adds. A channel: dt * u, D * u and the gate.
  c.flops = n * (8 * d_state + 6);
  c.exp2 = n * (d_state + (a.delta_softplus ? 2 : 0) + (a.z ? 1 : 0));
  return finish(c);
}

OpCost cost_of(const SsdScanArgs& a) {
  OpCost c;
  const int64_t heads_of_group_n = a.x.dim(1) / a.B.dim(1);
  const double token_heads = count(a.dt), headdim = static_cast<double>(a.x.dim(2)),
               d_state = static_cast<double>(a.B.dim(2)),
               heads_of_group = static_cast<double>(heads_of_group_n);
  c.memory_bytes = kFloat * (count(a.A_log2e) + count(a.D) + count(a.dt_bias)) +
                   state_bytes(a.ssm_state, a.batch);
  c.cache_bytes =
      kFloat * (count(a.x) + count(a.dt) + count(a.z) + count(a.B) + count(a.C) + count(a.out));
  // A single token decays and updates its state and reads it: 3 operations on each element. Longer
  // pieces need 2 and, in chunks of 16, the products inside a chunk.
  const bool single = a.batch.n_tokens() <= 8 * a.batch.n_seqs();
  constexpr double kHalfChunk = 8;
  const double products =
      single ? 3 * headdim * d_state
             : 2 * headdim * d_state + kHalfChunk * (headdim + d_state / heads_of_group);
  c.flops = 2 * token_heads * products;
  c.exp2 = token_heads * (a.dt_softplus ? 3 : 1) + count(a.z);
  return finish(c);
}

OpCost cost_of(const SampleArgs& a) {
  OpCost c;
  for (const SampleParams& p : a.params) {
    c.cache_bytes += kFloat * static_cast<double>(a.vocab_limit);
    if (p.temperature > 0) c.exp2 += static_cast<double>(a.vocab_limit);
  }
  return finish(c);
}

Bound bound_of(const OpCost& cost, const LimitRates& rates) {
  Bound bound;
  const auto consider = [&](Limit limit, double work) {
    const double seconds = rates[limit] > 0 ? work / rates[limit] : 0;
    if (seconds > bound.seconds) bound = {seconds, limit};
  };
  consider(Limit::kMemoryRead, cost.memory_bytes);
  consider(Limit::kL3Read, cost.cache_bytes);
  consider(Limit::kFma, cost.flops);
  consider(Limit::kInt8, cost.int8_ops);
  consider(Limit::kExp2, cost.exp2);
  return bound;
}

}  // namespace adder
