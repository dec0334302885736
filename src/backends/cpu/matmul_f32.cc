#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul_f32.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/matmul-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {

void MatmulF32(const MatmulArgs& args, CpuContext& context) {
  MatmulT<float>(args, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(MatmulF32);

void cpu_matmul_f32(const MatmulArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, MatmulF32)(args, context);
}

}  // namespace adder
#endif
