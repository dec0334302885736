#include "backends/cpu/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace adder {
namespace {

constexpr int64_t kQuads = 8;  // of a block of 32

// One panel's view of the rows it takes: absent ones read as null.
struct Rows {
  const std::byte* first;
  size_t stride;  // bytes
  int64_t count;

  const std::byte* row(int64_t i) const {
    return i < count ? first + static_cast<size_t>(i) * stride : nullptr;
  }
};

// [32][k] -> [k][32], 16 of k at a time so that the lines written stay in the L1 cache.
template <typename T>
void pack_plain(const Rows& rows, int64_t k, std::byte* to) {
  constexpr int64_t kStrip = 16;
  for (int64_t begin = 0; begin < k; begin += kStrip) {
    const int64_t length = std::min(kStrip, k - begin);
    T strip[kStrip * kPanel] = {};
    for (int64_t o = 0; o < rows.count; ++o) {
      T values[kStrip];
      std::memcpy(values, rows.row(o) + static_cast<size_t>(begin) * sizeof(T),
                  static_cast<size_t>(length) * sizeof(T));
      for (int64_t i = 0; i < length; ++i) strip[i * kPanel + o] = values[i];
    }
    const size_t bytes = static_cast<size_t>(length * kPanel) * sizeof(T);
    std::memcpy(to, strip, bytes);
    to += bytes;
  }
}

void put(std::byte*& to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  to += bytes;
}

// Stores 32 bytes of a row, element k of the block at [k / 4][output][k % 4].
void put_quads(const uint8_t (&values)[32], int64_t output, uint8_t* quads) {
  for (int64_t j = 0; j < kQuads; ++j)
    std::memcpy(quads + (j * kPanel + output) * 4, values + j * 4, 4);
}

// Two 4-bit values of a block of 32 to a byte: k and k + 16.
void put_nibbles(const uint8_t (&values)[32], int64_t output, uint8_t* nibbles) {
  for (int64_t k = 0; k < 16; ++k) {
    nibbles[(k / 4 * kPanel + output) * 4 + k % 4] =
        static_cast<uint8_t>(values[k] | values[k + 16] << 4);
  }
}

void pack_q8_0(const Rows& rows, int64_t k, std::byte* to) {
  for (int64_t block = 0; block < k / 32; ++block) {
    uint16_t d[kPanel] = {};
    uint8_t q[kQuads * kPanel * 4] = {};
    for (int64_t o = 0; o < rows.count; ++o) {
      const std::byte* from = rows.row(o) + block * 34;
      uint8_t values[32];
      std::memcpy(&d[o], from, 2);
      std::memcpy(values, from + 2, 32);
      put_quads(values, o, q);
    }
    put(to, d, sizeof d);
    put(to, q, sizeof q);
  }
}

void pack_q4_0(const Rows& rows, int64_t k, std::byte* to) {
  for (int64_t block = 0; block < k / 32; ++block) {
    uint16_t d[kPanel] = {};
    uint8_t nibbles[kQuads * kPanel * 2] = {};
    for (int64_t o = 0; o < rows.count; ++o) {
      const std::byte* from = rows.row(o) + block * 18;
      uint8_t packed[16], values[32];
      std::memcpy(&d[o], from, 2);
      std::memcpy(packed, from + 2, 16);
      for (int i = 0; i < 16; ++i) {
        values[i] = packed[i] & 15;
        values[i + 16] = packed[i] >> 4;
      }
      put_nibbles(values, o, nibbles);
    }
    put(to, d, sizeof d);
    put(to, nibbles, sizeof nibbles);
  }
}

// The 6-bit scale and minimum of block j of 8 in a Q4_K or Q5_K row.
void scale_and_min(const uint8_t* s, int j, uint8_t* scale, uint8_t* min) {
  if (j < 4) {
    *scale = s[j] & 63;
    *min = s[j + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    *min = static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6) << 4);
  }
}

template <bool kFiveBits>
void pack_q45_k(const Rows& rows, int64_t k, std::byte* to) {
  constexpr int64_t kBytes = kFiveBits ? 176 : 144;
  constexpr size_t kQuants = static_cast<size_t>(kQuads * kPanel) * (kFiveBits ? 4 : 2);
  struct Block {
    uint8_t scale[kPanel], min[kPanel], q[kQuants];
  };
  for (int64_t super = 0; super < k / 256; ++super) {
    uint16_t d[kPanel] = {}, dmin[kPanel] = {};
    Block blocks[8] = {};
    for (int64_t o = 0; o < rows.count; ++o) {
      const std::byte* from = rows.row(o) + super * kBytes;
      uint8_t scales[12], high[32] = {}, low[128];
      std::memcpy(&d[o], from, 2);
      std::memcpy(&dmin[o], from + 2, 2);
      std::memcpy(scales, from + 4, 12);
      if (kFiveBits) std::memcpy(high, from + 16, 32);
      std::memcpy(low, from + (kFiveBits ? 48 : 16), 128);
      for (int j = 0; j < 8; ++j) {
        scale_and_min(scales, j, &blocks[j].scale[o], &blocks[j].min[o]);
        uint8_t values[32];
        for (int i = 0; i < 32; ++i) {
          const uint8_t byte = low[j / 2 * 32 + i];
          values[i] = static_cast<uint8_t>((j % 2 == 0 ? byte & 15 : byte >> 4) |
                                           ((high[i] >> j) & 1) << 4);
        }
        if (kFiveBits) {
          put_quads(values, o, blocks[j].q);
        } else {
          put_nibbles(values, o, blocks[j].q);
        }
      }
    }
    put(to, d, sizeof d);
    put(to, dmin, sizeof dmin);
    put(to, blocks, sizeof blocks);
  }
}

void pack_q6_k(const Rows& rows, int64_t k, std::byte* to) {
  struct Block {
    uint8_t scale[2][kPanel], q[kQuads * kPanel * 4];
  };
  for (int64_t super = 0; super < k / 256; ++super) {
    uint16_t d[kPanel] = {};
    Block blocks[8] = {};
    for (int64_t o = 0; o < rows.count; ++o) {
      uint8_t low[128], high[64], scales[16];
      const std::byte* from = rows.row(o) + super * 210;
      std::memcpy(low, from, 128);
      std::memcpy(high, from + 128, 64);
      std::memcpy(scales, from + 192, 16);
      std::memcpy(&d[o], from + 208, 2);
      for (int j = 0; j < 8; ++j) {
        // Halves of 128; in each, block j takes the low nibbles of 32 bytes (j = 0, 1) or the high
        // ones (2, 3), and bits 2 j, 2 j + 1 of the 32 high bytes.
        const int half = j / 4, part = j % 4;
        uint8_t values[32];
        for (int i = 0; i < 32; ++i) {
          const uint8_t byte = low[half * 64 + part % 2 * 32 + i];
          const int nibble = part < 2 ? byte & 15 : byte >> 4;
          const int top = (high[half * 32 + i] >> (2 * part)) & 3;
          values[i] = static_cast<uint8_t>((nibble | top << 4) - 32);
        }
        put_quads(values, o, blocks[j].q);
        blocks[j].scale[0][o] = scales[2 * j];
        blocks[j].scale[1][o] = scales[2 * j + 1];
      }
    }
    put(to, d, sizeof d);
    put(to, blocks, sizeof blocks);
  }
}

void pack_panel(DType type, const Rows& rows, int64_t k, std::byte* to) {
  switch (type) {
    case DType::kF32:
      return pack_plain<uint32_t>(rows, k, to);
    case DType::kF16:
    case DType::kBF16:
      return pack_plain<uint16_t>(rows, k, to);
    case DType::kQ8_0:
      return pack_q8_0(rows, k, to);
    case DType::kQ4_0:
      return pack_q4_0(rows, k, to);
    case DType::kQ4_K:
      return pack_q45_k<false>(rows, k, to);
    case DType::kQ5_K:
      return pack_q45_k<true>(rows, k, to);
    case DType::kQ6_K:
      return pack_q6_k(rows, k, to);
    default:
      fail(ErrorCode::kInternal, "pack_weight: dtype {} is not one of weights", dtype_name(type));
  }
}

}  // namespace

size_t panel_bytes(DType type, int64_t k) {
  switch (type) {
    case DType::kQ8_0:
      return static_cast<size_t>(k / 32) * (64 + 1024);
    case DType::kQ4_0:
      return static_cast<size_t>(k / 32) * (64 + 512);
    case DType::kQ4_K:
      return static_cast<size_t>(k / 256) * (128 + 8 * (64 + 512));
    case DType::kQ5_K:
      return static_cast<size_t>(k / 256) * (128 + 8 * (64 + 1024));
    case DType::kQ6_K:
      return static_cast<size_t>(k / 256) * (64 + 8 * (64 + 1024));
    default:
      return static_cast<size_t>(k * kPanel) * dtype_size(type);
  }
}

Tensor pack_weight(const Tensor& host, ThreadPool& pool, Buffer* owner) {
  const int64_t n = host.dim(0), k = host.dim(1);
  const int64_t panels = (n + kPanel - 1) / kPanel;
  const size_t bytes = panel_bytes(host.dtype, k);
  *owner = allocate_large(static_cast<size_t>(panels) * bytes);
  auto* to = static_cast<std::byte*>(owner->data());
  const size_t stride = row_bytes(host.dtype, host.stride[0]);
  const auto* from = static_cast<const std::byte*>(host.data) + row_bytes(host.dtype, host.offset);
  pool.parallel_for(panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const auto at = static_cast<size_t>(p);
      pack_panel(host.dtype,
                 {from + at * kPanel * stride, stride, std::min(kPanel, n - p * kPanel)}, k,
                 to + at * bytes);
    }
  });
  Tensor packed(owner->data(), host.dtype, {n, k});
  packed.layout = TensorLayout::kPacked;
  return packed;
}

}  // namespace adder
