#include "ops/plain_ssd.h"

#include <algorithm>
#include <cmath>

#include "ops/plain_scan.h"

namespace adder::ops {

void plain_ssd(const adder::SsdScanArgs& a) {
  const int64_t tokens = a.x.dim(0), heads = a.x.dim(1), headdim = a.x.dim(2), dstate = a.B.dim(2);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* B = a.B.ptr<const float>() + t * a.B.stride[0];
    const float* C = a.C.ptr<const float>() + t * a.C.stride[0];
    for (int64_t h = 0; h < heads; ++h) {
      float dt = a.dt.ptr<const float>()[t * a.dt.stride[0] + h];
      if (a.dt_bias) dt += a.dt_bias.ptr<const float>()[h];
      if (a.dt_softplus) dt = softplus(dt);
      dt = std::clamp(dt, a.dt_min, a.dt_max);
      const float decay = std::exp2(dt * a.A_log2e.ptr<const float>()[h]);
      const float* x = a.x.ptr<const float>() + t * a.x.stride[0] + h * a.x.stride[1];
      float* out = a.out.ptr<float>() + t * a.out.stride[0] + h * a.out.stride[1];
      for (int64_t p = 0; p < headdim; ++p) {
        float* S = a.ssm_state.ptr<float>() + (h * headdim + p) * dstate;
        float y = 0.0f;
        for (int64_t n = 0; n < dstate; ++n) {
          S[n] = decay * S[n] + dt * x[p] * B[n];
          y += C[n] * S[n];
        }
        if (a.D) y += a.D.ptr<const float>()[a.D.rank == 2 ? h * a.D.stride[0] + p : h] * x[p];
        if (a.z) y *= silu(a.z.ptr<const float>()[t * a.z.stride[0] + h * a.z.stride[1] + p]);
        out[p] = y;
      }
    }
  }
}

}  // namespace adder::ops
