#include "backends/cuda/ladder.h"

#include <memory>

#include "backends/cuda/context.h"
#include "backends/cuda/scan/scan_ladder.h"
#include "kernels/checks.h"

namespace adder::ADDER_CUDA_NS {

std::vector<LadderRung> make_ladder(int device_index) {
  const auto context = std::make_shared<CudaContext>(device_index);
  std::vector<LadderRung> rungs;
  for (const DType activations : {DType::kF32, DType::kBF16}) {
    for (const ScanRung& rung : scan_ladder()) {
      rungs.push_back({rung.name, rung.description, activations,
                       [&rung, context](const SelectiveScanArgs& args) {
                         return rung.supports(context->device, args);
                       },
                       [&rung, context](const SelectiveScanArgs& args) {
                         if (args.u.dtype == DType::kF32) check(args);
                         rung.run(*context, args);
                       },
                       [context] { context->device.synchronize(); }});
    }
  }
  return rungs;
}

}  // namespace adder::ADDER_CUDA_NS
