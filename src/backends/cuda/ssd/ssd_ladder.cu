#include "backends/cuda/ssd/ssd_ladder.h"

#include "backends/cuda/ssd/ssd_kernels.h"

namespace adder::ADDER_CUDA_NS {
namespace {

bool any_shape(const SsdScanArgs& /*args*/) {
  return true;
}

constexpr SsdRung kLadder[] = {
    {"serial", "token by token, a warp per element, states in memory", any_shape, ssd_serial},
    {"step", "token by token, states in registers, 16-byte accesses", ssd_step_takes, ssd_step},
    {"chunked", "chunks of 64 in five kernels, float32 FMA, states through memory", any_shape,
     ssd_chunked},
    {"fused", "chunks of 64 in two kernels, tensor cores, states in registers", ssd_fused_takes,
     ssd_fused},
};

}  // namespace

std::span<const SsdRung> ssd_ladder() {
  return kLadder;
}

}  // namespace adder::ADDER_CUDA_NS
