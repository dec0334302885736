// The operations of the reference backend: plain loops, double accumulation, nothing clever. What
// they compute is the definition that other backends are measured against.
#pragma once

#include <cmath>

#include "kernels/backend.h"

namespace adder::ref {

// Each takes checked arguments.
void embedding(const EmbeddingArgs& args);
void rms_norm(const RmsNormArgs& args);
void gated_rms_norm(const GatedRmsNormArgs& args);
void matmul(const MatmulArgs& args);
void causal_conv1d(const CausalConv1dArgs& args);
void selective_scan(const SelectiveScanArgs& args);
void ssd_scan(const SsdScanArgs& args);
void sample(const SampleArgs& args);

// Address of element [i, ...] of the axes named; the rest starts at 0. Offsets are 64-bit: a batch
// of logits or a pool of states passes 2^31 elements.
template <typename T = float>
T* at(const Tensor& t, int64_t i) {
  return t.ptr<T>() + i * t.stride[0];
}
template <typename T = float>
T* at(const Tensor& t, int64_t i, int64_t j) {
  return t.ptr<T>() + i * t.stride[0] + j * t.stride[1];
}
template <typename T = float>
T* at(const Tensor& t, int64_t i, int64_t j, int64_t k) {
  return t.ptr<T>() + i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
}

// Element [i, j] of a weight matrix of any float type.
inline float weight_at(const Tensor& w, int64_t i, int64_t j) {
  if (w.dtype == DType::kF16) return f16_to_f32(*at<const uint16_t>(w, i, j));
  if (w.dtype == DType::kBF16) return bf16_to_f32(*at<const uint16_t>(w, i, j));
  return *at<const float>(w, i, j);
}

// A state is carried in double, but rounded to float32 every so many rows of a piece, as it is at a
// piece's end. So pieces cut there give the same bits as one piece: the promise of kSsdChunkAlign.
inline bool state_is_rounded(int64_t row_of_piece) {
  return row_of_piece % kSsdChunkAlign == 0;
}
inline double rounded(double v) {
  return static_cast<double>(static_cast<float>(v));
}

inline double silu(double v) {
  return v / (1.0 + std::exp(-v));
}
// Beyond 20 the result is v to within 2e-9: the threshold is torch's.
inline double softplus(double v) {
  return v > 20.0 ? v : std::log1p(std::exp(v));
}

}  // namespace adder::ref
