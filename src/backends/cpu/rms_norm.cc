#include <algorithm>
#include <cmath>

#include "backends/cpu/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/load-inl.h"
#include "backends/cpu/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(D()));

// Rows that a thread takes at once: about 16k elements, a few microseconds of work.
int64_t row_grain(int64_t dim) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, dim));
}

// Calls body(i, count) for vectors [i, i + count) of [0, dim): count == kLanes but for the last.
template <class Body>
HWY_INLINE void ForVectors(int64_t dim, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) body(i, kLanes);
  if (i < dim) body(i, dim - i);
}

HWY_INLINE V LoadN(const float* p, int64_t count) {
  return count == kLanes ? hn::LoadU(D(), p) : WidenTail(D(), p, static_cast<size_t>(count));
}

HWY_INLINE void StoreN(V v, float* p, int64_t count) {
  if (count == kLanes) {
    hn::StoreU(v, D(), p);
  } else {
    StoreTail(v, D(), p, static_cast<size_t>(count));
  }
}

// 1 / sqrt(mean + eps) in every lane, from the vector of partial sums of squares.
HWY_INLINE V InverseRms(V squares, int64_t dim, float eps) {
  const float sum = hn::GetLane(hn::SumOfLanes(D(), squares));
  return hn::Set(D(), 1.0f / std::sqrt(sum / static_cast<float>(dim) + eps));
}

}  // namespace

void RmsNorm(const RmsNormArgs& args, CpuContext& context) {
  const int64_t dim = args.x.dim(1);
  const float* weight = args.weight ? args.weight.ptr<const float>() : nullptr;
  context.pool.parallel_for(args.x.dim(0), row_grain(dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x.ptr<const float>() + row * args.x.stride[0];
      float* out = args.out.ptr<float>() + row * args.out.stride[0];
      const float* v = x;
      V squares = hn::Zero(D());
      if (args.residual) {
        float* residual = args.residual.ptr<float>() + row * args.residual.stride[0];
        ForVectors(dim, [&](int64_t i, int64_t count) HWY_ATTR {
          const V sum = hn::Add(LoadN(residual + i, count), LoadN(x + i, count));
          StoreN(sum, residual + i, count);
          squares = hn::MulAdd(sum, sum, squares);
        });
        v = residual;
      } else {
        ForVectors(dim, [&](int64_t i, int64_t count) HWY_ATTR {
          const V value = LoadN(x + i, count);
          squares = hn::MulAdd(value, value, squares);
        });
      }
      const V scale = InverseRms(squares, dim, args.eps);
      ForVectors(dim, [&](int64_t i, int64_t count) HWY_ATTR {
        V value = hn::Mul(LoadN(v + i, count), scale);
        if (weight != nullptr) value = hn::Mul(value, LoadN(weight + i, count));
        StoreN(value, out + i, count);
      });
    }
  });
}

void GatedRmsNorm(const GatedRmsNormArgs& args, CpuContext& context) {
  const int64_t dim = args.x.dim(1), group = dim / args.groups;
  const float* weight = args.weight.ptr<const float>();
  context.pool.parallel_for(args.x.dim(0), row_grain(dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x_row = args.x.ptr<const float>() + row * args.x.stride[0];
      const float* z_row = args.z.ptr<const float>() + row * args.z.stride[0];
      float* out_row = args.out.ptr<float>() + row * args.out.stride[0];
      for (int64_t start = 0; start < dim; start += group) {
        const float* x = x_row + start;
        const float* z = z_row + start;
        const float* w = weight + start;
        float* out = out_row + start;
        V squares = hn::Zero(D());
        if (args.norm_before_gate) {
          ForVectors(group, [&](int64_t i, int64_t count) HWY_ATTR {
            const V value = LoadN(x + i, count);
            squares = hn::MulAdd(value, value, squares);
          });
          const V scale = InverseRms(squares, group, args.eps);
          ForVectors(group, [&](int64_t i, int64_t count) HWY_ATTR {
            const V value = hn::Mul(hn::Mul(LoadN(x + i, count), scale), LoadN(w + i, count));
            StoreN(hn::Mul(value, Silu(D(), LoadN(z + i, count))), out + i, count);
          });
        } else {
          // The gated values wait in `out`, which may be x itself: x is not needed again.
          ForVectors(group, [&](int64_t i, int64_t count) HWY_ATTR {
            const V value = hn::Mul(LoadN(x + i, count), Silu(D(), LoadN(z + i, count)));
            squares = hn::MulAdd(value, value, squares);
            StoreN(value, out + i, count);
          });
          const V scale = InverseRms(squares, group, args.eps);
          ForVectors(group, [&](int64_t i, int64_t count) HWY_ATTR {
            StoreN(hn::Mul(hn::Mul(LoadN(out + i, count), scale), LoadN(w + i, count)), out + i,
                   count);
          });
        }
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(RmsNorm);
HWY_EXPORT(GatedRmsNorm);

void cpu_rms_norm(const RmsNormArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, RmsNorm)(args, context);
}
void cpu_gated_rms_norm(const GatedRmsNormArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, GatedRmsNorm)(args, context);
}

}  // namespace adder
#endif
