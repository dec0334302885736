#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_q4_k.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/matmul_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

void MatmulQ4K(const MatmulArgs& args, CpuContext& context) {
  MatmulBlocks<DType::kQ4_K>(args, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(MatmulQ4K);

void cpu_matmul_q4_k(const MatmulArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, MatmulQ4K)(args, context);
}

}  // namespace adder
#endif
