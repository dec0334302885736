// Which kernel a scan runs on. All that a shape can get give the same bits, so the lengths in a
// batch may choose between them: a sequence has the same bits however it is cut and packed.
#include <algorithm>

#include "backends/cuda/ops.h"
#include "backends/cuda/scan/scan_kernels.h"

namespace adder::ADDER_CUDA_NS {
namespace {

// Up to here a tile would be mostly empty.
constexpr int32_t kShort = 8;

}  // namespace

void selective_scan(CudaContext& context, const SelectiveScanArgs& a) {
  const int64_t d_state = a.B.dim(2);
  if (d_state > kMaxFlashStates) return scan_naive(context, a);
  int32_t longest = 0;
  for (int64_t i = 0; i < a.batch.n_seqs(); ++i) {
    const auto s = static_cast<size_t>(i);
    longest = std::max(longest, a.batch.seq_start[s + 1] - a.batch.seq_start[s]);
  }
  if (longest <= kShort && d_state <= kMaxUnrolledStates) return scan_unrolled(context, a);
  flash_scan(context, a);
}

}  // namespace adder::ADDER_CUDA_NS
