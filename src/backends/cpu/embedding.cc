#include "backends/cpu/ops.h"
#include "core/quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/embedding.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for every target.
#include "backends/cpu/load-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace adder {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void WidenRows(const EmbeddingArgs& args, CpuContext& context) {
  const int64_t dim = args.weight.dim(1);
  const T* weight = args.weight.ptr<const T>();
  float* out = args.out.ptr<float>();
  // 16 rows of 768 take a few microseconds: about what waking a thread costs.
  const int64_t grain = std::max<int64_t>(1, 16 * 768 / std::max<int64_t>(1, dim));
  context.pool.parallel_for(
      static_cast<int64_t>(args.ids.size()), grain, [&](int64_t begin, int64_t end, int) {
        const hn::ScalableTag<float> d;
        constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
        for (int64_t t = begin; t < end; ++t) {
          const T* from = weight + args.ids[static_cast<size_t>(t)] * args.weight.stride[0];
          float* to = out + t * args.out.stride[0];
          int64_t i = 0;
          for (; i + kLanes <= dim; i += kLanes) hn::StoreU(WidenU(d, from + i), d, to + i);
          const auto left = static_cast<size_t>(dim - i);
          if (left > 0) StoreTail(WidenTail(d, from + i, left), d, to + i, left);
        }
      });
}

// Rare next to the products that follow, so plain code will do.
void DequantizeRows(const EmbeddingArgs& args, CpuContext& context) {
  const int64_t dim = args.weight.dim(1);
  const int64_t grain = std::max<int64_t>(1, 2048 / std::max<int64_t>(1, dim));
  context.pool.parallel_for(
      static_cast<int64_t>(args.ids.size()), grain, [&](int64_t begin, int64_t end, int) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t row = args.ids[static_cast<size_t>(t)] * args.weight.stride[0];
          dequantize_row(
              args.weight.dtype, args.weight.bytes(row),
              {args.out.ptr<float>() + t * args.out.stride[0], static_cast<size_t>(dim)});
        }
      });
}

void Embedding(const EmbeddingArgs& args, CpuContext& context) {
  if (is_quantized(args.weight.dtype)) return DequantizeRows(args, context);
  switch (args.weight.dtype) {
    case DType::kF16:
      return WidenRows<hwy::float16_t>(args, context);
    case DType::kBF16:
      return WidenRows<hwy::bfloat16_t>(args, context);
    default:
      return WidenRows<float>(args, context);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace adder
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adder {
HWY_EXPORT(Embedding);

void cpu_embedding(const EmbeddingArgs& args, CpuContext& context) {
  ADDER_CPU_DISPATCH(context, Embedding)(args, context);
}

}  // namespace adder
#endif
