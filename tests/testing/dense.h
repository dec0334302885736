// Runs of the operations without a state, from host data.
#pragma once

#include <vector>

#include "core/quant.h"
#include "testing/compare.h"
#include "testing/inputs.h"
#include "testing/op_tensor.h"

namespace adder::testing {

inline constexpr DType kBlockFormats[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ5_K,
                                          DType::kQ6_K};

// A weight matrix rounded to its dtype: `values` are what the bits stand for.
struct Weight {
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0;
  std::vector<float> values;
  std::vector<uint16_t> bits;     // of 16-bit dtypes
  std::vector<std::byte> blocks;  // of block formats

  // Random bits of a 16-bit dtype hold huge values: these are normal ones with few bits.
  static Weight random(Rng& rng, DType dtype, int64_t rows, int64_t cols, float scale) {
    Weight w{dtype, rows, cols};
    if (is_quantized(dtype)) return random_blocks(rng, w, scale);
    w.values = rng.normals(rows * cols, scale);
    if (dtype == DType::kF32) return w;
    for (float& v : w.values) {
      // Any bit pattern is a weight; this one is close to v, which is all that matters.
      uint16_t b = f32_to_bf16(v);
      if (dtype == DType::kF16) {
        const auto mantissa = static_cast<uint32_t>(std::bit_cast<uint32_t>(v) >> 13) & 0x3ffu;
        const int exponent = std::ilogb(v) + 15;
        const uint32_t sign = std::signbit(v) ? 0x8000u : 0u;
        b = static_cast<uint16_t>(exponent < 1
                                      ? sign | mantissa  // a subnormal of about the size
                                      : sign | static_cast<uint32_t>(exponent) << 10 | mantissa);
      }
      w.bits.push_back(b);
      v = dtype == DType::kF16 ? f16_to_f32(b) : bf16_to_f32(b);
    }
    return w;
  }

  OpTensor tensor(Backend& backend, const Layout& layout) const {
    if (dtype == DType::kF32) return OpTensor(backend, {rows, cols}, layout, values);
    if (is_quantized(dtype)) return OpTensor(backend, dtype, {rows, cols}, layout, blocks);
    return OpTensor(backend, dtype, {rows, cols}, layout, bits);
  }

 private:
  // Random bytes, so that every level of scales and elements occurs (-128 in Q8_0, which no
  // quantizer writes, included), with halves of both signs that make values of about `scale`.
  static Weight random_blocks(Rng& rng, Weight w, float scale) {
    const BlockShape block = block_shape(w.dtype);
    const bool has_min = w.dtype == DType::kQ4_K || w.dtype == DType::kQ5_K;
    // Standard deviation over d of uniform q, or of its product with a uniform scale.
    const float spread = w.dtype == DType::kQ8_0   ? 74.0f
                         : w.dtype == DType::kQ4_0 ? 4.6f
                         : w.dtype == DType::kQ6_K ? 1370.0f
                         : w.dtype == DType::kQ4_K ? 230.0f
                                                   : 460.0f;
    w.blocks.resize(row_bytes(w.dtype, w.rows * w.cols));
    for (std::byte& b : w.blocks) b = static_cast<std::byte>(rng.below(256));
    for (size_t at = 0; at < w.blocks.size(); at += block.bytes) {
      float d = scale / spread * rng.uniform(0.5f, 1.5f);
      if (rng.below(2) == 0) d = -d;
      const uint16_t halves[] = {f32_to_f16(d),  // then, for zero mean, the middle level
                                 f32_to_f16(d * (w.dtype == DType::kQ4_K ? 7.5f : 15.5f))};
      const size_t where = w.dtype == DType::kQ6_K ? block.bytes - 2 : 0;
      std::memcpy(w.blocks.data() + at + where, halves, has_min ? 4 : 2);
    }
    w.values.resize(static_cast<size_t>(w.rows * w.cols));
    dequantize_row(w.dtype, w.blocks.data(), w.values);
    return w;
  }
};

inline std::vector<float> run_matmul(Backend& backend, const std::vector<float>& x,
                                     const Weight& weight, const std::vector<float>& bias,
                                     int64_t rows, const Layout& layout = kPacked) {
  OpTensor tx(backend, {rows, weight.cols}, layout, x), tweight = weight.tensor(backend, layout);
  OpTensor tbias = bias.empty() ? OpTensor() : OpTensor(backend, {weight.rows}, layout, bias);
  OpTensor tout(backend, {rows, weight.rows}, layout, {});
  MatmulArgs args;
  args.x = tx.view();
  Buffer owner;
  args.weight = backend.import_weight(tweight.view(), WeightUse::kMatmul, &owner);
  args.bias = tbias.view();
  args.out = tout.view();
  backend.matmul(args);
  return tout.read();
}

struct NormResult {
  std::vector<float> out, residual;
};

inline NormResult run_rms_norm(Backend& backend, const std::vector<float>& x,
                               const std::vector<float>& residual, const std::vector<float>& weight,
                               int64_t dim, float eps, const Layout& layout = kPacked,
                               bool in_place = false) {
  const int64_t rows = static_cast<int64_t>(x.size()) / dim;
  OpTensor tx(backend, {rows, dim}, layout, x), tout(backend, {rows, dim}, layout, {});
  OpTensor tresidual =
      residual.empty() ? OpTensor() : OpTensor(backend, {rows, dim}, layout, residual);
  OpTensor tweight = weight.empty() ? OpTensor() : OpTensor(backend, {dim}, layout, weight);
  RmsNormArgs args;
  args.x = tx.view();
  args.residual = tresidual.view();
  args.weight = tweight.view();
  args.eps = eps;
  args.out = in_place ? tx.view() : tout.view();
  backend.rms_norm(args);
  return {in_place ? tx.read() : tout.read(),
          residual.empty() ? std::vector<float>{} : tresidual.read()};
}

struct GatedNorm {
  int64_t dim = 0, groups = 1;
  bool norm_before_gate = false;
  float eps = 1e-5f;
  std::vector<float> x, z, weight;

  std::vector<float> run(Backend& backend, const Layout& layout = kPacked,
                         bool in_place = false) const {
    const int64_t rows = static_cast<int64_t>(x.size()) / dim;
    OpTensor tx(backend, {rows, dim}, layout, x), tz(backend, {rows, dim}, layout, z);
    OpTensor tweight(backend, {dim}, layout, weight), tout(backend, {rows, dim}, layout, {});
    GatedRmsNormArgs args;
    args.x = tx.view();
    args.z = tz.view();
    args.weight = tweight.view();
    args.eps = eps;
    args.groups = groups;
    args.norm_before_gate = norm_before_gate;
    args.out = in_place ? tx.view() : tout.view();
    backend.gated_rms_norm(args);
    return in_place ? tx.read() : tout.read();
  }
};

}  // namespace adder::testing
