// FlashScan: its variants and the choice between them.
#include "backends/cuda/scan/flash_scan.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

bool aligned_rows(const Tensor& t) {
  if (!t) return true;
  const auto unit = static_cast<int64_t>(16 / dtype_size(t.dtype));
  bool strides = true;
  for (int axis = 0; axis + 1 < t.rank; ++axis)
    strides = strides && (t.dim(axis) <= 1 || t.stride[static_cast<size_t>(axis)] % unit == 0);
  return strides && reinterpret_cast<uintptr_t>(t.bytes()) % 16 == 0;
}

bool aligned_operands(const SelectiveScanArgs& a) {
  const int64_t width = a.u.dim(1) / a.B.dim(1);  // where the channels of the next group begin
  return aligned_rows(a.u) && aligned_rows(a.delta) && aligned_rows(a.z) && aligned_rows(a.B) &&
         aligned_rows(a.C) && aligned_rows(a.out) &&
         (a.B.dim(1) == 1 || width * static_cast<int64_t>(dtype_size(a.u.dtype)) % 16 == 0);
}

// The number of lanes per channel with the least expected time. Derived, not measured: cost is the
// instructions per (token, channel), counted over the lanes (see flash_scan.cuh); a block takes
// cost / lanes; at least two blocks share an SM's time well, since a warp alone on its scheduler
// waits for its own results.
int lanes_by_shape(const Device& device, int64_t channels, int64_t n_seqs) {
  struct {
    int lanes, cost;
  } constexpr kOptions[] = {{1, 156}, {2, 172}, {4, 190}, {8, 210}};
  const int64_t sms = device.info().multiprocessors > 0 ? device.info().multiprocessors : 1;
  int best = 1;
  int64_t best_time = 0;
  for (const auto& option : kOptions) {
    const int64_t n = ceil_div(channels * option.lanes, kFlashThreads) * n_seqs;
    const int64_t waves = ceil_div(n, sms);
    const int64_t time = (waves < 2 ? 2 : waves) * option.cost * 8 / option.lanes;
    if (best_time == 0 || time < best_time) best = option.lanes, best_time = time;
  }
  return best;
}

template <typename T>
void run_sixteen(CudaContext& context, const FlashParams<T>& p, int lanes, bool fma) {
  constexpr bool kFma = kFmaInProduction;
  if (fma && !kFma) {
    if (lanes <= 4) return launch_flash<T, ScanLanes<4, 4, true, true>, false>(context, p);
    return launch_flash<T, ScanLanes<2, 8, true, true>, false>(context, p);
  }
  switch (lanes) {
    case 1:
      return launch_flash<T, ScanLanes<16, 1, true, kFma>, false>(context, p);
    case 2:
      return launch_flash<T, ScanLanes<8, 2, true, kFma>, false>(context, p);
    case 4:
      return launch_flash<T, ScanLanes<4, 4, true, kFma>, false>(context, p);
    case 8:
      return launch_flash<T, ScanLanes<2, 8, true, kFma>, false>(context, p);
    default:  // a lane with one state cannot trade
      return launch_flash<T, ScanLanes<1, 16, true, false>, false>(context, p);
  }
}

// States are padded to 8, 16, 64 or 256.
template <typename T>
void run(CudaContext& context, const SelectiveScanArgs& a, const FlashScanChoice& choice) {
  const FlashParams<T> p{scan_params<T>(context, a), aligned_operands(a)};
  const int64_t d_state = p.scan.d_state;
  if (d_state <= 8)
    return launch_flash<T, ScanLanes<8, 1, false, kFmaInProduction>, false>(context, p);
  if (d_state < 16)
    return launch_flash<T, ScanLanes<4, 4, false, kFmaInProduction>, false>(context, p);
  if (d_state > 64)
    return launch_flash<T, ScanLanes<16, 16, false, kFmaInProduction>, false>(context, p);
  if (d_state > 16)
    return launch_flash<T, ScanLanes<8, 8, false, kFmaInProduction>, false>(context, p);
  const int lanes = choice.lanes != 0
                        ? choice.lanes
                        : lanes_by_shape(context.device, p.scan.d_inner, p.scan.batch.n_seqs);
  if (choice.bulk && can_copy_in_bulk(context.device, a))
    return launch_flash_bulk(context, p, lanes);
  run_sixteen(context, p, lanes, choice.fma);
}

}  // namespace

bool can_copy_in_bulk(const Device& device, const SelectiveScanArgs& a) {
  const int64_t width = a.u.dim(1) / a.B.dim(1);
  return device.info().major >= 9 && a.B.dim(2) == 16 && aligned_operands(a) &&
         width * static_cast<int64_t>(dtype_size(a.u.dtype)) % 16 == 0;
}

void flash_scan(CudaContext& context, const SelectiveScanArgs& a, const FlashScanChoice& choice) {
  with_activations(a, [&](auto type) { run<decltype(type)>(context, a, choice); });
}

}  // namespace adder::ADDER_CUDA_NS
