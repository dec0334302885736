#include "ops/causal_conv1d.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"
#include "ops/conv_tile.h"
#include "ops/dispatch.h"
#include "ops/runtime.h"
#include "ops/segments.h"
#include "ops/slots.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

// weight and bias, whose width is returned.
int64_t check_taps(std::string_view op, const ArrayView& weight, const ArrayView& bias,
                   int64_t dim) {
  check_rank(op, "weight", weight, 2);
  const int64_t width = weight.dim(1);
  check_operand(op, "weight", weight, {dim, width});
  ADDER_CHECK(width >= 1, "{}: weight: expected a width of at least 1, got {}", op, width);
  if (bias) check_operand(op, "bias", bias, {dim});
  return width;
}

// Exact between arrays of one dtype.
void copy(const ArrayView& from, const ArrayView& to) {
  if (from.dtype == to.dtype) return copy_exact(from, to);
  for (int64_t i = 0; i < from.dim(0); ++i)
    store_float(load_float(from.data + i * from.step(0), from.dtype), to.data + i * to.step(0),
                to.dtype);
}

// state (channels, state_len) takes in x (seqlen, channels) at its end.
void shift_in(const ArrayView& state, const ArrayView& x) {
  const int64_t length = state.dim(1), seqlen = x.dim(0);
  // Ascending order is safe: an entry comes from behind itself.
  for (int64_t j = 0; j < length; ++j) {
    const int64_t from = seqlen + j;
    if (from < length) {
      copy_exact(state.select(1, from), state.select(1, j));
    } else {
      copy(x.select(0, from - length), state.select(1, j));
    }
  }
}

// The same in a circle, from position `start` on.
void write_circular(const ArrayView& state, const ArrayView& x, int64_t start) {
  const int64_t length = state.dim(1), seqlen = x.dim(0);
  for (int64_t t = std::max<int64_t>(0, seqlen - length); t < seqlen; ++t)
    copy(x.select(0, t), state.select(1, (start % length + t) % length));
}

// Checks a call of causal_conv1d_fn; its width.
int64_t checked_width(const CausalConv1dFnArgs& a) {
  constexpr std::string_view kOp = "causal_conv1d_fn";
  check_rank(kOp, "x", a.x, 3);
  const int64_t batch = a.x.dim(0), dim = a.x.dim(1), seqlen = a.x.dim(2);
  check_float(kOp, "x", a.x);
  const int64_t width = check_taps(kOp, a.weight, a.bias, dim);
  if (a.seq_idx) {
    check_shape(kOp, "seq_idx", a.seq_idx, {batch, seqlen});
    check_integer(kOp, "seq_idx", a.seq_idx);
  }
  if (a.initial_states)
    check_operand(kOp, "initial_states", a.initial_states, {batch, dim, width - 1});
  check_operand(kOp, "out", a.out, {batch, dim, seqlen});
  check_output(kOp, "out", a.out);
  if (a.final_states) {
    check_operand(kOp, "final_states_out", a.final_states, {batch, dim, width - 1});
    check_output(kOp, "final_states_out", a.final_states);
  }
  return width;
}

// A step with a time axis, in any case.
struct ConvUpdate {
  ArrayView x, out;  // (batch, dim, seqlen)
  int64_t batch, dim, seqlen, width, length;
  const int32_t* slot;  // (batch)
};

ConvUpdate checked(const CausalConv1dUpdateArgs& a) {
  constexpr std::string_view kOp = "causal_conv1d_update";
  ADDER_CHECK(a.x.rank == 2 || a.x.rank == 3,
              "{}: x: expected (batch, dim) or (batch, dim, seqlen), got {}", kOp, a.x.describe());
  const auto with_time = [](const ArrayView& x) { return x.rank == 2 ? x.insert_axis(2) : x; };
  const ArrayView x = with_time(a.x);
  const int64_t batch = x.dim(0), dim = x.dim(1), seqlen = x.dim(2);
  check_float(kOp, "x", a.x);
  const int64_t width = check_taps(kOp, a.weight, a.bias, dim);
  check_rank(kOp, "conv_state", a.conv_state, 3);
  const int64_t slots = a.conv_state.dim(0), length = a.conv_state.dim(2);
  check_operand(kOp, "conv_state", a.conv_state, {slots, dim, length});
  check_output(kOp, "conv_state", a.conv_state);
  ADDER_CHECK(length >= width - 1,
              "{}: conv_state: expected at least width - 1 = {} entries, got {}", kOp, width - 1,
              length);
  if (a.cache_seqlens) {
    check_shape(kOp, "cache_seqlens", a.cache_seqlens, {batch});
    check_integer(kOp, "cache_seqlens", a.cache_seqlens);
    for (int64_t b = 0; b < batch; ++b)
      ADDER_CHECK(load_integer(a.cache_seqlens, b) >= 0,
                  "{}: cache_seqlens[{}]: expected at least 0, got {}", kOp, b,
                  load_integer(a.cache_seqlens, b));
  }
  const ArrayView all_out = with_time(a.out);
  check_operand(kOp, "out", all_out, {batch, dim, seqlen});
  check_output(kOp, "out", a.out);
  const int32_t* slot = nullptr;
  // A batch of nothing may be of any size.
  if (!a.out.empty())
    slot =
        checked_slots(kOp, "conv_state_indices", a.conv_state_indices, batch, "conv_state", slots);
  return {x, all_out, batch, dim, seqlen, width, length, slot};
}

void check(const CausalConv1dVarlenStatesArgs& a) {
  constexpr std::string_view kOp = "causal_conv1d_varlen_states";
  check_rank(kOp, "x", a.x, 2);
  check_cu_seqlens(kOp, a.cu_seqlens, a.x.dim(0));
  check_rank(kOp, "states", a.states, 3);
  const int64_t sequences = a.cu_seqlens.dim(0) - 1, length = a.states.dim(2);
  check_shape(kOp, "states", a.states, {sequences, a.x.dim(1), length});
  check_output(kOp, "states", a.states);
  ADDER_CHECK(a.states.dtype == a.x.dtype && a.states.is_complex == a.x.is_complex,
              "{}: states: expected the dtype of x, got {} and {}", kOp, a.states.describe(),
              a.x.describe());
}

}  // namespace

void causal_conv1d_fn(const CausalConv1dFnArgs& a) {
  const int64_t width = checked_width(a);
  const int64_t batch = a.x.dim(0), dim = a.x.dim(1), seqlen = a.x.dim(2);
  if (a.out.empty() && a.final_states.empty()) return;
  std::vector<std::vector<Segment>> segments(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b)
    segments[static_cast<size_t>(b)] =
        row_segments(a.seq_idx ? a.seq_idx.select(0, b) : a.seq_idx, {}, seqlen);

  const int64_t block = conv_tile_width(dim, batch), blocks = (dim + block - 1) / block;
  run_tasks(batch * blocks, block * seqlen * (width + 4), [&](int64_t task) {
    const int64_t b = task / blocks, c0 = task % blocks * block;
    const int64_t channels = std::min(block, dim - c0);
    const auto rows = [&](const ArrayView& x) {
      return x.select(0, b).slice(0, c0, channels).permute({1, 0});
    };
    ConvTile tile(a.weight.slice(0, c0, channels), a.bias ? a.bias.slice(0, c0, channels) : a.bias,
                  a.silu, seqlen);
    if (a.initial_states) {
      gather(rows(a.initial_states), tile.state(), channels);
    } else {
      tile.clear_state();
    }
    for (const Segment& s : segments[static_cast<size_t>(b)]) {
      const ArrayView out = rows(a.out).slice(0, s.begin, s.end - s.begin);
      if (s.sequence < 0) {
        fill_zero(out);
        continue;
      }
      if (s.sequence > 0) tile.clear_state();
      tile.run(rows(a.x).slice(0, s.begin, s.end - s.begin), out);
    }
    if (a.final_states) scatter(tile.state(), channels, rows(a.final_states));
  });
}

void causal_conv1d_update(const CausalConv1dUpdateArgs& a) {
  const ConvUpdate u = checked(a);
  if (a.out.empty()) return;
  const ArrayView &x = u.x, &all_out = u.out;
  const int64_t batch = u.batch, dim = u.dim, seqlen = u.seqlen, width = u.width, length = u.length;
  const int32_t* slot = u.slot;
  const int64_t block = conv_tile_width(dim, batch), blocks = (dim + block - 1) / block;
  run_tasks(batch * blocks, block * seqlen * (width + 8), [&](int64_t task) {
    const int64_t b = task / blocks, c0 = task % blocks * block;
    const int64_t channels = std::min(block, dim - c0);
    const auto rows = [&](const ArrayView& v) {
      return v.select(0, b).slice(0, c0, channels).permute({1, 0});
    };
    const ArrayView out = rows(all_out), in = rows(x);
    if (slot[b] < 0) return fill_zero(out);
    ConvTile tile(a.weight.slice(0, c0, channels), a.bias ? a.bias.slice(0, c0, channels) : a.bias,
                  a.silu, seqlen);
    const ArrayView state = a.conv_state.select(0, slot[b]).slice(0, c0, channels);
    const int64_t start = a.cache_seqlens ? load_integer(a.cache_seqlens, b) : 0;
    if (!a.cache_seqlens) {
      gather(state.slice(1, length - (width - 1), width - 1).permute({1, 0}), tile.state(),
             channels);
    } else {
      for (int64_t k = 0; k + 1 < width; ++k) {
        const int64_t from = (start % length + length - (width - 1) + k) % length;
        load_vector(state.select(1, from), tile.state() + k * channels);
      }
    }
    tile.run(in, out);
    if (a.cache_seqlens) {
      if (length > 0) write_circular(state, in, start);
    } else {
      shift_in(state, in);
    }
  });
}

void causal_conv1d_varlen_states(const CausalConv1dVarlenStatesArgs& a) {
  check(a);
  const int64_t sequences = a.states.dim(0), length = a.states.dim(2);
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t begin = load_integer(a.cu_seqlens, i), end = load_integer(a.cu_seqlens, i + 1);
    for (int64_t j = 0; j < length; ++j) {
      const ArrayView to = a.states.select(0, i).select(1, j);
      const int64_t t = end - length + j;
      if (t < begin) {
        fill_zero(to);
      } else {
        copy_exact(a.x.select(0, t), to);
      }
    }
  }
}

bool on_device(DeviceCall& call, const CausalConv1dFnArgs& a) {
  const int64_t width = checked_width(a);
  if (a.out.empty() && a.final_states.empty()) return true;
  const int64_t batch = a.x.dim(0), seqlen = a.x.dim(2);
  ConvArrays arrays{a.x, a.out, a.weight, a.bias, a.initial_states, a.final_states, a.silu, {}, {}};
  if (width == 1) arrays.initial_states = arrays.final_states = {};  // of no entries
  std::vector<int32_t> begin, rows;
  if (a.seq_idx) {
    if (seqlen > std::numeric_limits<int32_t>::max()) return false;
    for (int64_t b = 0; b < batch; ++b) {
      int32_t first = 0, last = 0, end = 0;
      for (const Segment& s : row_segments(a.seq_idx.select(0, b), {}, seqlen)) {
        const auto from = static_cast<int32_t>(s.begin);
        begin.insert(begin.end(), static_cast<size_t>(s.end - s.begin), s.sequence < 0 ? -1 : from);
        if (s.sequence < 0) continue;
        if (s.sequence == 0) first = from;
        last = from;
        end = static_cast<int32_t>(s.end);
      }
      rows.insert(rows.end(), {first, last, end});
    }
    arrays.begin = begin;
    arrays.rows = rows;
  }
  call.device().conv(arrays);
  return true;
}

bool on_device(DeviceCall& call, const CausalConv1dUpdateArgs& a) {
  const ConvUpdate u = checked(a);
  if (a.out.empty()) return true;
  ConvUpdateArrays arrays{u.x, u.out, a.conv_state, a.weight, a.bias, a.silu, {}, {}};
  if (a.conv_state_indices) arrays.slots = {u.slot, static_cast<size_t>(u.batch)};
  std::vector<int64_t> positions;
  if (a.cache_seqlens) {
    for (int64_t b = 0; b < u.batch; ++b)
      positions.push_back(u.length == 0 ? 0 : load_integer(a.cache_seqlens, b) % u.length);
    arrays.positions = positions;
  }
  call.device().conv_update(arrays);
  return true;
}

bool on_device(DeviceCall& call, const CausalConv1dVarlenStatesArgs& a) {
  check(a);
  if (a.states.empty()) return true;
  const int64_t length = a.states.dim(2);
  // What no copy reaches is 0. New memory has no gaps.
  const ArrayView packed(a.states.data, a.states.dtype, {a.states.size()});
  call.device().zero(packed.data, static_cast<size_t>(packed.dim(0) * a.states.item_bytes()));
  for (int64_t i = 0; i < a.states.dim(0); ++i) {
    const int64_t end = load_integer(a.cu_seqlens, i + 1);
    const int64_t count = std::min(length, end - load_integer(a.cu_seqlens, i));
    call.device().copy(a.x.slice(0, end - count, count).permute({1, 0}),
                       a.states.select(0, i).slice(1, length - count, count));
  }
  return true;
}

}  // namespace adder::ops
