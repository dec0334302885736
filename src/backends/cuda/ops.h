// The operations of the CUDA backend. Each takes checked arguments whose tensors lie in device
// memory, and enqueues its work.
#pragma once

#include "backends/cuda/context.h"
#include "kernels/backend.h"

namespace adder::ADDER_CUDA_NS {

// A copy in device memory: for kRows the bytes as they are, rows without gaps; for kMatmul a matrix
// in the form of matmul/, kPacked.
Tensor import_weight(CudaContext& context, const Tensor& host, WeightUse use, Buffer* owner);
// Of a kRows matrix, the same memory for products; null where these need padded or packed rows.
Tensor matmul_view(const Tensor& rows);
void embedding(CudaContext& context, const EmbeddingArgs& args);
void gather_rows(CudaContext& context, const Tensor& x, std::span<const int32_t> rows,
                 const Tensor& out);
void rms_norm(CudaContext& context, const RmsNormArgs& args);
void gated_rms_norm(CudaContext& context, const GatedRmsNormArgs& args);
void matmul(CudaContext& context, const MatmulArgs& args);
void causal_conv1d(CudaContext& context, const CausalConv1dArgs& args);
void selective_scan(CudaContext& context, const SelectiveScanArgs& args);
void ssd_scan(CudaContext& context, const SsdScanArgs& args);
// Whether the fused step below takes these: one row per sequence at most, and the shapes and places
// that a Mamba-2 mixer has. If not, the three operations do it.
bool conv_ssd_norm_takes(const ConvSsdNormArgs& args);
void conv_ssd_norm(CudaContext& context, const ConvSsdNormArgs& args);
// Waits: the ids are for the host.
void sample(CudaContext& context, const SampleArgs& args);
std::unique_ptr<DecodeLoop> make_decode_loop(CudaContext& context, int64_t rows,
                                             int64_t vocab_limit, const DecodeStep& step);

}  // namespace adder::ADDER_CUDA_NS
