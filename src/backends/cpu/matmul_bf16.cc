#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_bf16.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/matmul-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

void MatmulBF16(const MatmulArgs& args, CpuContext& context) {
  MatmulT<hwy::bfloat16_t>(args, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(MatmulBF16);

void cpu_matmul_bf16(const MatmulArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, MatmulBF16)(args, context);
}

}  // namespace adder
#endif
