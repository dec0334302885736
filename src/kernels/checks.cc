#include "kernels/checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "core/error.h"

namespace adder {
namespace {

using Dims = std::initializer_list<int64_t>;

// `data` is opaque here: strides and shapes are all that can be judged.
void check_tensor(std::string_view op, std::string_view field, const Tensor& t, Dims want) {
  int64_t size = 1;
  for (int64_t d : want) size *= d;
  const bool shape_ok = t.rank == static_cast<int>(want.size()) &&
                        std::equal(want.begin(), want.end(), t.shape.begin());
  // An empty tensor may come without memory.
  ADDER_CHECK(t.data != nullptr || (shape_ok && size == 0), "{}: {}: expected ({}), got none", op,
              field, fmt::join(want, ", "));
  ADDER_CHECK(shape_ok, "{}: {}: expected ({}), got {}", op, field, fmt::join(want, ", "),
              t.describe());
  ADDER_CHECK(t.has_unit_inner_stride(), "{}: {}: expected unit stride on the last axis, got {}",
              op, field, t.stride[static_cast<size_t>(t.rank - 1)]);
}

void check_f32(std::string_view op, std::string_view field, const Tensor& t, Dims want) {
  check_tensor(op, field, t, want);
  ADDER_CHECK(t.dtype == DType::kF32, "{}: {}: expected F32, got {}", op, field,
              dtype_name(t.dtype));
}

void check_optional_f32(std::string_view op, std::string_view field, const Tensor& t, Dims want) {
  if (t) check_f32(op, field, t, want);
}

void check_weight(std::string_view op, std::string_view field, Tensor t, Dims want) {
  if (t.layout == TensorLayout::kPacked) t.layout = TensorLayout::kStrided;  // shape and dtype only
  check_tensor(op, field, t, want);
  ADDER_CHECK(t.dtype == DType::kF32 || t.dtype == DType::kF16 || t.dtype == DType::kBF16 ||
                  is_quantized(t.dtype),
              "{}: {}: expected F32, F16, BF16 or a block format, got {}", op, field,
              dtype_name(t.dtype));
  const int64_t block = block_shape(t.dtype).elements;
  ADDER_CHECK(t.dim(1) % block == 0 && t.stride[0] % block == 0,
              "{}: {}: expected rows of whole blocks of {}, got {} with row stride {}", op, field,
              block, t.describe(), t.stride[0]);
}

// The tensor whose shape gives the sizes that the others are held against.
void check_rank(std::string_view op, std::string_view field, const Tensor& t, int rank) {
  ADDER_CHECK(t.rank == rank, "{}: {}: expected {} axes, got {}", op, field, rank, t.describe());
}

// Catches the plain mistake of passing the same tensor; slices that interleave are the caller's.
void check_no_alias(std::string_view op, std::string_view field, const Tensor& out,
                    const Tensor& in) {
  ADDER_CHECK(out.size() == 0 || out.data != in.data || out.offset != in.offset,
              "{}: out: expected memory of its own, got that of {}", op, field);
}

void check_divides(std::string_view op, std::string_view what, int64_t groups, int64_t whole) {
  ADDER_CHECK(groups > 0 && whole % groups == 0, "{}: {}: expected a divisor of {}, got {}", op,
              what, whole, groups);
}

void check_batch(std::string_view op, const PackedBatch& batch, int64_t n_tokens, int64_t slots) {
  const auto& start = batch.seq_start;
  const int64_t n_seqs = batch.n_seqs();
  ADDER_CHECK(static_cast<int64_t>(start.size()) == n_seqs + 1 || (start.empty() && n_seqs == 0),
              "{}: seq_start: expected {} entries, got {}", op, n_seqs + 1, start.size());
  ADDER_CHECK(start.empty() || start[0] == 0, "{}: seq_start[0]: expected 0, got {}", op, start[0]);
  for (size_t i = 1; i < start.size(); ++i)
    ADDER_CHECK(start[i] >= start[i - 1], "{}: seq_start[{}]: expected at least {}, got {}", op, i,
                start[i - 1], start[i]);
  ADDER_CHECK(batch.n_tokens() == n_tokens, "{}: seq_start: expected {} rows in all, got {}", op,
              n_tokens, batch.n_tokens());
  // Kept between calls: this runs once per operation and layer, and must not allocate each time.
  thread_local std::vector<int32_t> used;
  used.clear();
  for (int32_t slot : batch.state_slot) {
    ADDER_CHECK(slot >= -1 && slot < slots,
                "{}: state_slot: expected -1 or one of {} slots, got {}", op, slots, slot);
    if (slot >= 0) used.push_back(slot);
  }
  std::sort(used.begin(), used.end());
  const auto twice = std::adjacent_find(used.begin(), used.end());
  ADDER_CHECK(twice == used.end(), "{}: state_slot: expected distinct slots, got {} twice", op,
              *twice);
}

void check_eps(std::string_view op, float eps) {
  ADDER_CHECK(std::isfinite(eps) && eps >= 0, "{}: eps: expected a finite number >= 0, got {}", op,
              eps);
}

void check_sampling(std::string_view op, const SampleParams& p, int64_t vocab) {
  ADDER_CHECK(std::isfinite(p.temperature) && p.temperature >= 0,
              "{}: temperature: expected a finite number >= 0, got {}", op, p.temperature);
  ADDER_CHECK(p.top_k >= 0, "{}: top_k: expected at least 0, got {}", op, p.top_k);
  ADDER_CHECK(p.top_p >= 0 && p.top_p <= 1, "{}: top_p: expected 0 to 1, got {}", op, p.top_p);
  ADDER_CHECK(p.min_p >= 0 && p.min_p <= 1, "{}: min_p: expected 0 to 1, got {}", op, p.min_p);
  ADDER_CHECK(std::isfinite(p.repeat_penalty) && p.repeat_penalty > 0,
              "{}: repeat_penalty: expected a finite number > 0, got {}", op, p.repeat_penalty);
  ADDER_CHECK(p.uniform >= 0 && p.uniform < 1, "{}: uniform: expected 0 to below 1, got {}", op,
              p.uniform);
  for (int32_t id : p.recent)
    ADDER_CHECK(id >= 0 && id < vocab, "{}: recent: expected ids from 0 to {}, got {}", op,
                vocab - 1, id);
}

}  // namespace

void check(const EmbeddingArgs& a) {
  constexpr std::string_view op = "embedding";
  check_rank(op, "weight", a.weight, 2);
  const int64_t vocab = a.weight.dim(0), d_model = a.weight.dim(1);
  check_weight(op, "weight", a.weight, {vocab, d_model});
  ADDER_CHECK(a.weight.layout == TensorLayout::kStrided,
              "{}: weight: expected rows that can be looked up, got packed {}", op,
              a.weight.describe());
  check_f32(op, "out", a.out, {static_cast<int64_t>(a.ids.size()), d_model});
  for (size_t t = 0; t < a.ids.size(); ++t)
    ADDER_CHECK(a.ids[t] >= 0 && a.ids[t] < vocab, "{}: ids[{}]: expected 0 to {}, got {}", op, t,
                vocab - 1, a.ids[t]);
}

void check(const RmsNormArgs& a) {
  constexpr std::string_view op = "rms_norm";
  check_rank(op, "x", a.x, 2);
  const int64_t rows = a.x.dim(0), dim = a.x.dim(1);
  check_f32(op, "x", a.x, {rows, dim});
  check_optional_f32(op, "residual", a.residual, {rows, dim});
  check_optional_f32(op, "weight", a.weight, {dim});
  check_f32(op, "out", a.out, {rows, dim});
  check_eps(op, a.eps);
}

void check(const GatedRmsNormArgs& a) {
  constexpr std::string_view op = "gated_rms_norm";
  check_rank(op, "x", a.x, 2);
  const int64_t rows = a.x.dim(0), dim = a.x.dim(1);
  check_f32(op, "x", a.x, {rows, dim});
  check_f32(op, "z", a.z, {rows, dim});
  check_f32(op, "weight", a.weight, {dim});
  check_f32(op, "out", a.out, {rows, dim});
  check_divides(op, "groups", a.groups, dim);
  check_eps(op, a.eps);
}

void check(const MatmulArgs& a) {
  constexpr std::string_view op = "matmul";
  check_rank(op, "x", a.x, 2);
  check_rank(op, "weight", a.weight, 2);
  const int64_t rows = a.x.dim(0), in = a.x.dim(1), out = a.weight.dim(0);
  check_f32(op, "x", a.x, {rows, in});
  check_weight(op, "weight", a.weight, {out, in});
  check_optional_f32(op, "bias", a.bias, {out});
  check_f32(op, "out", a.out, {rows, out});
  check_no_alias(op, "x", a.out, a.x);
}

void check(const CausalConv1dArgs& a) {
  constexpr std::string_view op = "causal_conv1d";
  check_rank(op, "x", a.x, 2);
  check_rank(op, "weight", a.weight, 2);
  check_rank(op, "conv_state", a.conv_state, 3);
  const int64_t tokens = a.x.dim(0), channels = a.x.dim(1), d_conv = a.weight.dim(0);
  ADDER_CHECK(d_conv >= 2, "{}: weight: expected d_conv of at least 2, got {}", op, d_conv);
  check_f32(op, "x", a.x, {tokens, channels});
  check_f32(op, "weight", a.weight, {d_conv, channels});
  check_optional_f32(op, "bias", a.bias, {channels});
  check_f32(op, "conv_state", a.conv_state, {a.conv_state.dim(0), d_conv - 1, channels});
  check_f32(op, "out", a.out, {tokens, channels});
  check_no_alias(op, "x", a.out, a.x);
  check_batch(op, a.batch, tokens, a.conv_state.dim(0));
}

void check(const SelectiveScanArgs& a) {
  constexpr std::string_view op = "selective_scan";
  check_rank(op, "u", a.u, 2);
  check_rank(op, "B", a.B, 3);
  check_rank(op, "ssm_state", a.ssm_state, 3);
  const int64_t tokens = a.u.dim(0), d_inner = a.u.dim(1), slots = a.ssm_state.dim(0);
  const int64_t n_groups = a.B.dim(1), d_state = a.B.dim(2);
  check_f32(op, "u", a.u, {tokens, d_inner});
  check_f32(op, "delta", a.delta, {tokens, d_inner});
  check_f32(op, "A_log2e", a.A_log2e, {d_state, d_inner});
  check_f32(op, "B", a.B, {tokens, n_groups, d_state});
  check_f32(op, "C", a.C, {tokens, n_groups, d_state});
  check_optional_f32(op, "D", a.D, {d_inner});
  check_optional_f32(op, "z", a.z, {tokens, d_inner});
  check_optional_f32(op, "delta_bias", a.delta_bias, {d_inner});
  check_f32(op, "ssm_state", a.ssm_state, {slots, d_state, d_inner});
  check_f32(op, "out", a.out, {tokens, d_inner});
  check_divides(op, "n_groups", n_groups, d_inner);
  check_batch(op, a.batch, tokens, slots);
}

void check(const SsdScanArgs& a) {
  constexpr std::string_view op = "ssd_scan";
  check_rank(op, "x", a.x, 3);
  check_rank(op, "B", a.B, 3);
  check_rank(op, "ssm_state", a.ssm_state, 4);
  const int64_t tokens = a.x.dim(0), n_heads = a.x.dim(1), headdim = a.x.dim(2);
  const int64_t n_groups = a.B.dim(1), d_state = a.B.dim(2), slots = a.ssm_state.dim(0);
  check_f32(op, "x", a.x, {tokens, n_heads, headdim});
  check_f32(op, "dt", a.dt, {tokens, n_heads});
  check_f32(op, "A_log2e", a.A_log2e, {n_heads});
  check_f32(op, "B", a.B, {tokens, n_groups, d_state});
  check_f32(op, "C", a.C, {tokens, n_groups, d_state});
  if (a.D && a.D.rank == 2)
    check_f32(op, "D", a.D, {n_heads, headdim});
  else
    check_optional_f32(op, "D", a.D, {n_heads});
  check_optional_f32(op, "z", a.z, {tokens, n_heads, headdim});
  check_optional_f32(op, "dt_bias", a.dt_bias, {n_heads});
  check_f32(op, "ssm_state", a.ssm_state, {slots, n_heads, headdim, d_state});
  check_f32(op, "out", a.out, {tokens, n_heads, headdim});
  check_no_alias(op, "x", a.out, a.x);
  check_divides(op, "n_groups", n_groups, n_heads);
  // Also refuses NaN, which no comparison accepts.
  ADDER_CHECK(a.dt_min <= a.dt_max, "{}: dt_min: expected at most dt_max = {}, got {}", op,
              a.dt_max, a.dt_min);
  check_batch(op, a.batch, tokens, slots);
}

void check(const SampleArgs& a) {
  constexpr std::string_view op = "sample";
  check_rank(op, "logits", a.logits, 2);
  const int64_t rows = a.logits.dim(0), vocab = a.logits.dim(1);
  check_f32(op, "logits", a.logits, {rows, vocab});
  ADDER_CHECK(a.vocab_limit >= 1 && a.vocab_limit <= vocab,
              "{}: vocab_limit: expected 1 to {}, got {}", op, vocab, a.vocab_limit);
  ADDER_CHECK(static_cast<int64_t>(a.params.size()) == rows, "{}: params: expected {}, got {}", op,
              rows, a.params.size());
  ADDER_CHECK(static_cast<int64_t>(a.out.size()) == rows, "{}: out: expected {}, got {}", op, rows,
              a.out.size());
  for (const SampleParams& p : a.params) check_sampling(op, p, vocab);
}

void check(std::span<const DecodeRow> rows, int64_t max_rows, int64_t vocab) {
  constexpr std::string_view op = "decode_loop";
  ADDER_CHECK(static_cast<int64_t>(rows.size()) <= max_rows,
              "{}: rows: expected at most {}, got {}", op, max_rows, rows.size());
  for (const DecodeRow& r : rows) {
    ADDER_CHECK(r.slot >= -1, "{}: slot: expected -1 or a slot, got {}", op, r.slot);
    if (r.slot < 0) continue;
    const auto same = [&](const DecodeRow& other) { return other.slot == r.slot; };
    ADDER_CHECK(std::count_if(rows.begin(), rows.end(), same) == 1,
                "{}: slot: expected distinct slots, got {} twice", op, r.slot);
    check_sampling(op, r.sampling, vocab);
    ADDER_CHECK(r.token >= 0 && r.token < vocab, "{}: token: expected 0 to {}, got {}", op,
                vocab - 1, r.token);
    ADDER_CHECK(r.repeat_last_n >= 0 && r.repeat_last_n <= kDecodeRecent,
                "{}: repeat_last_n: expected 0 to {}, got {}", op, kDecodeRecent, r.repeat_last_n);
    ADDER_CHECK(static_cast<int64_t>(r.sampling.recent.size()) <= r.repeat_last_n,
                "{}: recent: expected at most repeat_last_n = {} ids, got {}", op, r.repeat_last_n,
                r.sampling.recent.size());
    ADDER_CHECK(r.max_tokens >= 1, "{}: max_tokens: expected at least 1, got {}", op, r.max_tokens);
  }
}

void check_gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) {
  constexpr std::string_view op = "gather_rows";
  check_rank(op, "x", x, 2);
  check_f32(op, "x", x, {x.dim(0), x.dim(1)});
  check_f32(op, "out", out, {static_cast<int64_t>(rows.size()), x.dim(1)});
  check_no_alias(op, "x", out, x);
  for (size_t i = 0; i < rows.size(); ++i)
    ADDER_CHECK(rows[i] >= 0 && rows[i] < x.dim(0), "{}: rows[{}]: expected 0 to {}, got {}", op, i,
                x.dim(0) - 1, rows[i]);
}

void check_copy(std::string_view op, const Tensor& tensor, size_t host_bytes) {
  const size_t bytes = row_bytes(tensor.dtype, tensor.size());
  ADDER_CHECK(tensor.is_contiguous(), "{}: expected a contiguous tensor, got {} with gaps", op,
              tensor.describe());
  ADDER_CHECK(bytes == host_bytes, "{}: expected {} bytes of host memory for {}, got {}", op, bytes,
              tensor.describe(), host_bytes);
}

void check_state_slot(const Tensor& state, int32_t slot) {
  ADDER_CHECK(state && state.rank >= 2, "state: expected (slots, ...), got {}", state.describe());
  ADDER_CHECK(slot >= 0 && slot < state.dim(0), "state: expected a slot from 0 to {}, got {}",
              state.dim(0) - 1, slot);
  ADDER_CHECK(state.select(slot).is_contiguous(),
              "state: expected contiguous memory within a slot, got {} with gaps",
              state.describe());
}

}  // namespace adder
