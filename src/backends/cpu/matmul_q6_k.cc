#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_q6_k.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/matmul_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

void MatmulQ6K(const MatmulArgs& args, CpuContext& context) {
  MatmulBlocks<DType::kQ6_K>(args, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(MatmulQ6K);

void cpu_matmul_q6_k(const MatmulArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, MatmulQ6K)(args, context);
}

}  // namespace adder
#endif
