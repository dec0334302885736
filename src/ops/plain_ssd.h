// The Mamba-2 recurrence as a plain loop, for decays above 1, which the backends do not take.
#pragma once

#include "kernels/ssd_scan.h"

namespace adder::ops {

// One sequence, one slot and one group; host memory. Otherwise as Backend::ssd_scan.
void plain_ssd(const adder::SsdScanArgs& args);

}  // namespace adder::ops
