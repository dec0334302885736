#include "io/tensor_values.h"

#include "core/error.h"
#include "core/quant.h"

namespace adder {

void read_values(const StoredTensor& t, int64_t begin, std::span<float> out) {
  const bool plain = t.dtype == DType::kF32 || t.dtype == DType::kF16 || t.dtype == DType::kBF16;
  if (!plain && !is_quantized(t.dtype)) {
    bad_input("{}: tensor '{}': expected dtype F32, F16, BF16 or a block format, got {}", t.file,
              t.name, dtype_name(t.dtype));
  }
  if (t.is_contiguous()) {  // as block formats always are
    dequantize_row(t.dtype, t.data + row_bytes(t.dtype, begin), out);
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t rest = begin + static_cast<int64_t>(i), index = 0;
    for (size_t axis = t.shape.size(); axis-- > 0; rest /= t.shape[axis])
      index += rest % t.shape[axis] * t.stride[axis];
    dequantize_row(t.dtype, t.data + row_bytes(t.dtype, index), out.subspan(i, 1));
  }
}

}  // namespace adder
