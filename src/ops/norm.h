// Layer and RMS normalisation on arrays of any number of axes (state-spaces/mamba:
// mamba_ssm.ops.triton.layer_norm and layernorm_gated, forward).
#pragma once

#include <string_view>

#include "kernels/array_device.h"
#include "ops/array_view.h"

namespace adder::ops {

using NormArgs = adder::NormArrays;  // with the formulas

// op: the name that errors give.
void norm(std::string_view op, const NormArgs& args);

}  // namespace adder::ops
