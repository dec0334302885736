// Rung (e): as mamba-ssm's selective_scan kernel has it, a block per channel, several tokens per
// thread and a scan over the block for each state, but with everything around it in the same pass:
// bias, softplus, D, gate, initial and final state, sequences of any length packed. Of about 15
// instructions per (token, channel, state) two thirds are the scan's.
#include "backends/cuda/scan/scan_chunks.cuh"
#include "backends/cuda/scan/scan_kernels.h"

namespace adder::ADDER_CUDA_NS {

void scan_fused(CudaContext& context, const SelectiveScanArgs& a) {
  scan_by_chunks<WarpScan, 128, 8>(context, a);
}

}  // namespace adder::ADDER_CUDA_NS
