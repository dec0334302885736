// The operations of ArrayDevice (kernels/array_device.h): each enqueues its work.
#pragma once

#include "backends/cuda/context.h"
#include "kernels/array_device.h"

namespace adder::ADDER_CUDA_NS {

void copy_array(CudaContext& context, const ArrayView& from, const ArrayView& to, float scale);
void state_update(CudaContext& context, const StateUpdateArrays& arrays);
void conv(CudaContext& context, const ConvArrays& arrays);
void conv_update(CudaContext& context, const ConvUpdateArrays& arrays);
void norm(CudaContext& context, const NormArrays& arrays);

}  // namespace adder::ADDER_CUDA_NS
