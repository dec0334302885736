#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_f16.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/matmul-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

void MatmulF16(const MatmulArgs& args, CpuContext& context) {
  MatmulT<hwy::float16_t>(args, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(MatmulF16);

void cpu_matmul_f16(const MatmulArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, MatmulF16)(args, context);
}

}  // namespace adder
#endif
