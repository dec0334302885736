// FlashScan with a warp that fills the tiles by bulk copies (sm_90). A file of its own because each
// of its kernels takes a while to compile.
#include "backends/cuda/scan/flash_scan.cuh"

namespace adder::ADDER_CUDA_NS {

template <typename T>
void launch_flash_bulk(CudaContext& context, const FlashParams<T>& p, int lanes) {
  switch (lanes) {
    case 2:
      return launch_flash<T, ScanLanes<8, 2, true, kFmaInProduction>, true>(context, p);
    case 4:
      return launch_flash<T, ScanLanes<4, 4, true, kFmaInProduction>, true>(context, p);
    default:
      return launch_flash<T, ScanLanes<2, 8, true, kFmaInProduction>, true>(context, p);
  }
}
template void launch_flash_bulk(CudaContext&, const FlashParams<float>&, int);
template void launch_flash_bulk(CudaContext&, const FlashParams<Bf16>&, int);

}  // namespace adder::ADDER_CUDA_NS
