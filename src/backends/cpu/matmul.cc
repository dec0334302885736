#include "backends/cpu/matmul.h"

#include "backends/cpu/ops.h"
#include "core/error.h"

namespace adder {

void cpu_matmul(const MatmulArgs& args, CpuContext& context) {
  switch (args.weight.dtype) {
    case DType::kF32:
      return cpu_matmul_f32(args, context);
    case DType::kF16:
      return cpu_matmul_f16(args, context);
    case DType::kBF16:
      return cpu_matmul_bf16(args, context);
    case DType::kQ8_0:
      return cpu_matmul_q8_0(args, context);
    case DType::kQ4_0:
      return cpu_matmul_q4_0(args, context);
    case DType::kQ4_K:
      return cpu_matmul_q4_k(args, context);
    case DType::kQ5_K:
      return cpu_matmul_q5_k(args, context);
    case DType::kQ6_K:
      return cpu_matmul_q6_k(args, context);
    default:
      fail(ErrorCode::kInternal, "matmul: weight dtype {} passed the checks",
           dtype_name(args.weight.dtype));
  }
}

}  // namespace adder
