// What lies between the projections of a Mamba-2 mixer: three operations of the contract in a row,
// handed over together so that a backend may fuse them.
#pragma once

#include <optional>

#include "kernels/causal_conv1d.h"
#include "kernels/rms_norm.h"
#include "kernels/ssd_scan.h"

namespace adder {

// Results are those of the three one after the other, to the bit. Afterwards conv.out is undefined,
// and so is scan.out where there is a norm that writes elsewhere.
struct ConvSsdNormArgs {
  CausalConv1dArgs conv;
  SsdScanArgs scan;                      // x, B and C are columns of conv.out
  std::optional<GatedRmsNormArgs> norm;  // of scan.out
};

}  // namespace adder
