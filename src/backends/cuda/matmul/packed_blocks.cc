#include "backends/cuda/matmul/packed_blocks.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/quant.h"
#include "core/quant_blocks.h"

namespace adder::ADDER_CUDA_NS {
namespace {

void put_nibbles(const QuantBlock& block, int offset, int64_t b, std::byte* elements) {
  std::byte* unit = elements + b / 4 * PackedBlocks::kUnitBytes;
  for (size_t e = 0; e < 16; ++e) {
    const int low = block.q[e] + offset, high = block.q[e + 16] + offset;
    unit[e / 4 * 16 + static_cast<size_t>(b % 4) * 4 + e % 4] =
        static_cast<std::byte>(low | high << 4);
  }
}

void put_bytes(const QuantBlock& block, int64_t b, std::byte* elements) {
  std::byte* unit = elements + b / 2 * PackedBlocks::kUnitBytes;
  for (size_t e = 0; e < 32; ++e)
    unit[e % 16 / 4 * 16 + static_cast<size_t>(b % 2) * 8 + e / 16 * 4 + e % 4] =
        static_cast<std::byte>(block.q[e]);
}

// The code of block b of a row, and the float16 pair of its 256.
void put_scales(DType type, const std::byte* row, int64_t b, const PackedRow& to) {
  const BlockShape shape = block_shape(type);
  const int64_t parts = shape.elements / 32;
  const auto* from =
      reinterpret_cast<const uint8_t*>(row) + static_cast<size_t>(b / parts) * shape.bytes;
  const auto j = static_cast<int>(b % parts);
  uint8_t code[2], halves[4] = {};
  if (!has_halves(type)) {
    std::memcpy(code, from, 2);
  } else if (type == DType::kQ6_K) {
    std::memcpy(code, from + 192 + 2 * j, 2);
    std::memcpy(halves, from + 208, 2);
  } else {
    const auto [scale, min] = quant::k_scale_and_min(from + 4, j);
    code[0] = static_cast<uint8_t>(scale);
    code[1] = static_cast<uint8_t>(min);
    std::memcpy(halves, from, 4);
  }
  std::memcpy(to.codes + b * 2, code, 2);
  if (has_halves(type)) std::memcpy(to.halves + b / parts * 4, halves, 4);
}

}  // namespace

void pack_row(DType type, const std::byte* row, int64_t in_features, const PackedRow& to) {
  for (int64_t b = 0; b < in_features / 32; ++b) {
    const QuantBlock block = unpack_block(type, row, b);
    if (has_nibbles(type))
      put_nibbles(block, type == DType::kQ4_0 ? 8 : 0, b, to.elements);
    else
      put_bytes(block, b, to.elements);
    put_scales(type, row, b, to);
  }
}

Tensor pack_blocks(CudaContext& context, const Tensor& host, Buffer* owner) {
  constexpr int64_t kStagingBytes = 4 << 20;
  const int64_t outputs = host.dim(0), in_features = host.dim(1);
  const PackedBlocks layout(host.dtype, in_features, outputs);
  *owner = context.device.allocate(layout.bytes);
  Tensor packed(owner->data(), host.dtype, {outputs, in_features});
  packed.layout = TensorLayout::kPacked;
  const int64_t row_size = layout.element_row + layout.code_row + layout.half_row;
  if (row_size == 0) return packed;

  const int64_t most =
      std::clamp<int64_t>(kStagingBytes / row_size, 1, std::max<int64_t>(outputs, 1));
  std::vector<std::byte> staging(static_cast<size_t>(most * row_size));
  auto* to = static_cast<std::byte*>(owner->data());
  for (int64_t begin = 0; begin < outputs; begin += most) {
    const int64_t rows = std::min(most, outputs - begin);
    std::fill(staging.begin(), staging.end(), std::byte{0});
    std::byte* elements = staging.data();
    std::byte* codes = elements + rows * layout.element_row;
    std::byte* halves = codes + rows * layout.code_row;
    for (int64_t r = 0; r < rows; ++r)
      pack_row(host.dtype, host.bytes((begin + r) * host.stride[0]), in_features,
               {elements + r * layout.element_row, codes + r * layout.code_row,
                halves + r * layout.half_row});
    const auto put = [&](size_t plane, int64_t row_bytes, const std::byte* from) {
      context.device.upload(to + plane + begin * row_bytes, from,
                            static_cast<size_t>(rows * row_bytes));
    };
    put(0, layout.element_row, elements);
    put(layout.codes_at, layout.code_row, codes);
    put(layout.halves_at, layout.half_row, halves);
  }
  return packed;
}

}  // namespace adder::ADDER_CUDA_NS
