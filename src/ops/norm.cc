#include "ops/norm.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "ops/dispatch.h"
#include "ops/plain_scan.h"
#include "ops/runtime.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

struct NormSizes {
  int64_t rows, dim, group;
};

void check_same(std::string_view op, std::string_view name, const ArrayView& x,
                const ArrayView& like, int rank) {
  const bool same = x.given && x.rank == rank &&
                    std::equal(like.shape.begin(), like.shape.begin() + rank, x.shape.begin());
  ADDER_CHECK(same, "{}: {}: expected shape {}, got {}", op, name,
              shape_text(like.shape.data(), rank),
              x.given ? shape_text(x.shape.data(), x.rank) : "None");
  check_float(op, name, x);
}

NormSizes checked(std::string_view op, const NormArgs& a) {
  ADDER_CHECK(a.x.given && a.x.rank >= 1, "{}: x: expected at least 1 axis, got {}", op,
              a.x.describe());
  check_float(op, "x", a.x);
  NormSizes s;
  s.dim = a.x.dim(a.x.rank - 1);
  s.rows = 1;
  for (int axis = 0; axis + 1 < a.x.rank; ++axis) s.rows *= a.x.dim(axis);
  check_operand(op, "weight", a.weight, {s.dim});
  if (a.bias) check_operand(op, "bias", a.bias, {s.dim});
  if (a.weight1) check_operand(op, "weight1", a.weight1, {s.dim});
  if (a.bias1) check_operand(op, "bias1", a.bias1, {s.dim});
  ADDER_CHECK(a.weight1.given == a.out1.given && (a.weight1 || !a.bias1),
              "{}: weight1: expected it together with bias1, got {}", op, a.weight1.describe());
  if (a.residual) check_same(op, "residual", a.residual, a.x, a.x.rank);
  if (a.x1) check_same(op, "x1", a.x1, a.x, a.x.rank);
  if (a.z) check_same(op, "z", a.z, a.x, a.x.rank);
  if (a.rowscale) check_same(op, "rowscale", a.rowscale, a.x, a.x.rank - 1);
  for (const auto& [name, x] : {std::pair("out", &a.out), std::pair("out1", &a.out1),
                                std::pair("residual_out", &a.residual_out)}) {
    if (!*x && x != &a.out) continue;
    check_same(op, name, *x, a.x, a.x.rank);
    check_output(op, name, *x);
  }
  s.group = a.group_size == 0 ? s.dim : a.group_size;
  ADDER_CHECK(s.dim == 0 || (s.group > 0 && s.dim % s.group == 0),
              "{}: group_size: expected a divisor of {}, got {}", op, s.dim, s.group);
  ADDER_CHECK(std::isfinite(a.eps) && a.eps >= 0, "{}: eps: expected a finite number >= 0, got {}",
              op, a.eps);
  return s;
}

// Row `index` of an array, counted over all axes but the last: (1, dim).
ArrayView row_of(const ArrayView& x, int64_t index) {
  ArrayView row = x;
  for (int axis = x.rank - 2; axis >= 0; --axis) {
    row = row.select(axis, index % x.dim(axis));
    index /= x.dim(axis);
  }
  return row.insert_axis(0);
}

// The rows [begin, begin + count) one after another.
void gather_rows(const ArrayView& x, int64_t begin, int64_t count, int64_t dim, float* out) {
  for (int64_t r = 0; r < count; ++r) gather(row_of(x, begin + r), out + r * dim, dim);
}

void scatter_rows(const float* in, int64_t begin, int64_t count, int64_t dim, const ArrayView& to) {
  for (int64_t r = 0; r < count; ++r) scatter(in + r * dim, dim, row_of(to, begin + r));
}

// sum over i of term(v[i]), in an order that depends on the count alone and suits vectors.
template <typename Term>
float sum_of(const float* v, int64_t count, Term term) {
  constexpr int64_t kLanes = 16;
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lane[k] += term(v[i + k]);
  for (int64_t k = 0; i < count; ++i, ++k) lane[k] += term(v[i]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}

// v = (v - mean) / sqrt(var + eps) for one group.
void normalize(float* v, int64_t count, float eps, bool rms) {
  const auto size = static_cast<float>(count);
  const float mean = rms ? 0.0f : sum_of(v, count, [](float x) { return x; }) / size;
  const float var = sum_of(v, count, [&](float x) { return (x - mean) * (x - mean); }) / size;
  const float scale = 1.0f / std::sqrt(var + eps);
  for (int64_t i = 0; i < count; ++i) v[i] = (v[i] - mean) * scale;
}

// Rows of v in place, by the formula; z (count, dim) or null.
void norm_rows(const NormArgs& a, const NormSizes& s, float* v, const float* z, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    float* row = v + r * s.dim;
    if (z != nullptr && !a.norm_before_gate) {
      for (int64_t i = 0; i < s.dim; ++i) row[i] *= silu(z[r * s.dim + i]);
    }
    for (int64_t g = 0; g < s.dim; g += s.group) normalize(row + g, s.group, a.eps, a.rms);
  }
}

void affine(const NormSizes& s, const float* v, const Tensor& weight, const Tensor& bias,
            const float* gate, int64_t count, float* out) {
  const float *w = weight.ptr<const float>(), *b = bias ? bias.ptr<const float>() : nullptr;
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < s.dim; ++i) {
      const float y = v[r * s.dim + i] * w[i] + (b != nullptr ? b[i] : 0.0f);
      out[r * s.dim + i] = gate != nullptr ? y * silu(gate[r * s.dim + i]) : y;
    }
  }
}

// Rows of a call that have no bias, mean or second output: the backend's own operations.
void backend_rows(const NormArgs& a, const NormSizes& s, float* v, float* z, const Tensor& weight,
                  int64_t count) {
  const Tensor rows(v, DType::kF32, {count, s.dim});
  if (z == nullptr) {
    RmsNormArgs args;
    args.x = args.out = rows;
    args.weight = weight;
    args.eps = a.eps;
    local_backend().rms_norm(args);
    return;
  }
  GatedRmsNormArgs args;
  args.x = args.out = rows;
  args.z = {z, DType::kF32, {count, s.dim}};
  args.weight = weight;
  args.eps = a.eps;
  args.groups = s.dim / s.group;
  args.norm_before_gate = a.norm_before_gate;
  local_backend().gated_rms_norm(args);
}

void norm_block(const NormArgs& a, const NormSizes& s, int64_t begin, int64_t count) {
  const int64_t dim = s.dim, size = count * dim;
  Scratch scratch(3 * Scratch::padded(size) + 4 * Scratch::padded(dim));
  float* v = scratch.take(size);
  float* other = scratch.take(size);
  float* out = scratch.take(size);
  const Tensor weight = load_vector(a.weight, scratch.take(dim));
  const Tensor bias = load_vector(a.bias, scratch.take(dim));
  gather_rows(a.x, begin, count, dim, v);
  if (a.rowscale) {
    for (int64_t r = 0; r < count; ++r) {
      const ArrayView at = row_of(a.rowscale.insert_axis(a.rowscale.rank), begin + r);
      const float scale = load_float(at.data, at.dtype);
      for (int64_t i = 0; i < dim; ++i) v[r * dim + i] *= scale;
    }
  }
  for (const ArrayView* term : {&a.x1, &a.residual}) {
    if (!*term) continue;
    gather_rows(*term, begin, count, dim, other);
    for (int64_t i = 0; i < size; ++i) v[i] += other[i];
  }
  if (a.residual_out) scatter_rows(v, begin, count, dim, a.residual_out);
  if (a.z) gather_rows(a.z, begin, count, dim, other);
  float* z = a.z ? other : nullptr;
  if (a.rms && !a.bias && !a.weight1 && (a.z || s.group == dim)) {
    backend_rows(a, s, v, z, weight, count);
    return scatter_rows(v, begin, count, dim, a.out);
  }
  norm_rows(a, s, v, z, count);
  const float* gate = a.norm_before_gate ? z : nullptr;
  affine(s, v, weight, bias, gate, count, out);
  scatter_rows(out, begin, count, dim, a.out);
  if (!a.weight1) return;
  affine(s, v, load_vector(a.weight1, scratch.take(dim)), load_vector(a.bias1, scratch.take(dim)),
         gate, count, out);
  scatter_rows(out, begin, count, dim, a.out1);
}

}  // namespace

void norm(std::string_view op, const NormArgs& a) {
  const NormSizes s = checked(op, a);
  if (s.rows == 0 || s.dim == 0) return;
  // About 64 KB of each operand.
  const int64_t block = std::clamp<int64_t>(16384 / s.dim, 1, s.rows);
  const int64_t blocks = (s.rows + block - 1) / block;
  run_tasks(blocks, 8 * block * s.dim, [&](int64_t task) {
    const int64_t begin = task * block;
    norm_block(a, s, begin, std::min(block, s.rows - begin));
  });
}

bool on_device(DeviceCall& call, const NormArgs& a) {
  const NormSizes s = checked(call.op(), a);
  if (s.rows == 0 || s.dim == 0) return true;
  call.device().norm(a);
  return true;
}

}  // namespace adder::ops
