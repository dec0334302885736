// Between users' layouts and dtypes. Neighbouring threads take neighbours in memory, on either
// side: where the two sides disagree about the axis that runs fastest, numbers go through a tile of
// shared memory.
#include <algorithm>
#include <cstdlib>

#include "backends/cuda/arrays/array_ops.h"
#include "backends/cuda/arrays/numbers.cuh"

namespace adder::ADDER_CUDA_NS {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32, kTileRows = kThreads / kTile;

struct CopyParams {
  ArrayView from, to;  // equal shapes; the last axis runs fastest in `to`
  int64_t count;       // of elements, or of tiles
  float scale;
  int units, unit;  // an element as it is; units 0: a number, converted
};

__device__ __forceinline__ void move(const CopyParams& p, const std::byte* from, std::byte* to) {
  if (p.units > 0) {
    copy_element(from, to, p.units, p.unit);
  } else {
    store_number(p.scale * load_number(from, p.from.dtype), to, p.to.dtype);
  }
}

__global__ void copy_kernel(CopyParams p) {
  int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.count) return;
  int64_t from = 0, to = 0;
  for (int axis = p.to.rank - 1; axis >= 0; --axis) {
    const int64_t size = p.to.dim(axis), at = index % size;
    index /= size;
    from += at * p.from.step(axis);
    to += at * p.to.step(axis);
  }
  move(p, p.from.data + from, p.to.data + to);
}

struct TurnShared {
  float tile[kTile][kTile + 1];  // without conflicts of banks either way
};

// The last axis runs fastest in `to`, the one before it in `from`. A block has a tile of the two.
__global__ void turn_kernel(CopyParams p) {
  TurnShared& shared = shared_memory<TurnShared>();
  const int rank = p.to.rank, x = static_cast<int>(threadIdx.x) % kTile,
            y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t rows = p.to.dim(rank - 2), columns = p.to.dim(rank - 1);
  int64_t index = blockIdx.x;
  const int64_t across = ceil_div(columns, kTile), down = ceil_div(rows, kTile);
  const int64_t column = index % across * kTile;
  index /= across;
  const int64_t row = index % down * kTile;
  index /= down;
  const std::byte* from = p.from.data;
  std::byte* to = p.to.data;
  for (int axis = rank - 3; axis >= 0; --axis) {
    const int64_t size = p.to.dim(axis), at = index % size;
    index /= size;
    from += at * p.from.step(axis);
    to += at * p.to.step(axis);
  }
  for (int i = y; i < kTile; i += kTileRows) {
    if (row + x < rows && column + i < columns)
      shared.tile[x][i] = load_number(
          from + (row + x) * p.from.step(rank - 2) + (column + i) * p.from.step(rank - 1),
          p.from.dtype);
  }
  __syncthreads();
  for (int i = y; i < kTile; i += kTileRows) {
    if (row + i < rows && column + x < columns)
      store_number(p.scale * shared.tile[i][x],
                   to + (row + i) * p.to.step(rank - 2) + (column + x) * p.to.step(rank - 1),
                   p.to.dtype);
  }
}

// The axis whose neighbours lie closest together; the last one of equals.
int fastest(const ArrayView& a, int rank) {
  int best = rank - 1;
  for (int axis = rank - 2; axis >= 0; --axis)
    if (std::abs(a.step(axis)) < std::abs(a.step(best))) best = axis;
  return best;
}

void swap_axes(CopyParams& p, int a, int b) {
  const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
  for (ArrayView* view : {&p.from, &p.to}) {
    std::swap(view->shape[i], view->shape[j]);
    std::swap(view->stride[i], view->stride[j]);
  }
}

// Axes of one entry are none.
void drop_single_axes(CopyParams& p) {
  int rank = 0;
  for (int axis = 0; axis < p.to.rank; ++axis) {
    if (p.to.dim(axis) == 1) continue;
    const auto from = static_cast<size_t>(axis), to = static_cast<size_t>(rank++);
    for (ArrayView* view : {&p.from, &p.to}) {
      view->shape[to] = view->shape[from];
      view->stride[to] = view->stride[from];
    }
  }
  p.from.rank = p.to.rank = rank;
}

bool is_number(const ArrayView& a) {
  return !a.is_complex && a.dtype != DType::kI32 && a.dtype != DType::kI64;
}

}  // namespace

void copy_array(CudaContext& context, const ArrayView& from, const ArrayView& to, float scale) {
  CopyParams p{from, to, to.size(), scale, 0, 0};
  if (p.count == 0) return;
  if (from.dtype == to.dtype && from.is_complex == to.is_complex && scale == 1.0f) {
    p.unit = static_cast<int>(dtype_size(from.dtype));
    p.units = from.is_complex ? 2 : 1;
  }
  drop_single_axes(p);
  const int rank = p.to.rank;
  bool turned = false;
  if (rank > 1) {
    swap_axes(p, fastest(p.to, rank), rank - 1);
    // An axis of stride 0 is read again and again in any order.
    const int source = fastest(p.from, rank);
    turned = is_number(p.from) && from.dtype != DType::kF64 && source != rank - 1 &&
             p.from.step(source) != 0;
    if (turned) swap_axes(p, source, rank - 2);
  }
  if (!turned) {
    launch(context.device, copy_kernel, {blocks(ceil_div(p.count, kThreads)), dim3(kThreads)}, p);
    return;
  }
  p.units = 0;  // float32 or narrower: a float holds it exactly
  int64_t tiles = ceil_div(p.to.dim(rank - 2), kTile) * ceil_div(p.to.dim(rank - 1), kTile);
  for (int axis = 0; axis + 2 < rank; ++axis) tiles *= p.to.dim(axis);
  launch(context.device, turn_kernel, {blocks(tiles), dim3(kThreads), sizeof(TurnShared)}, p);
}

}  // namespace adder::ADDER_CUDA_NS
