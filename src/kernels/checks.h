// Argument validation shared by all backends: expected against got, before any work.
#pragma once

#include "kernels/backend.h"

namespace adder {

void check(const EmbeddingArgs& args);
void check(const RmsNormArgs& args);
void check(const GatedRmsNormArgs& args);
void check(const MatmulArgs& args);
void check(const CausalConv1dArgs& args);
void check(const SelectiveScanArgs& args);
void check(const SsdScanArgs& args);
void check(const SampleArgs& args);
// vocab: tokens and ids of `recent` are below it.
void check(std::span<const DecodeRow> rows, int64_t max_rows, int64_t vocab);
void check_gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out);
void check_state_slot(const Tensor& state, int32_t slot);
// Of Backend::read and write.
void check_copy(std::string_view op, const Tensor& tensor, size_t host_bytes);

}  // namespace adder
