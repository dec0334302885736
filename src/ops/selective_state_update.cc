#include "ops/selective_state_update.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "ops/dispatch.h"
#include "ops/runtime.h"
#include "ops/scan_tile.h"
#include "ops/slots.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

constexpr std::string_view kOp = "selective_state_update";

// Everything with heads: without them, one head of dim channels.
struct Update {
  int64_t batch, nheads, headdim, dstate, ngroups;
  ArrayView state;          // (slots, nheads, headdim, dstate)
  ArrayView x, dt, z, out;  // (batch, nheads, headdim)
  ArrayView A;              // (nheads, headdim, dstate)
  ArrayView B, C;           // (batch, ngroups, dstate)
  ArrayView D, dt_bias;     // (nheads, headdim)
  const int32_t* slot;      // (batch)
  bool growing = false;     // A has a number above 0
  bool per_head = false;    // dt, A and dt_bias are one number for a head, and A is at most 0
};

ArrayView with_groups(std::string_view name, const ArrayView& x, const Update& u) {
  ADDER_CHECK(x.given && (x.rank == 2 || x.rank == 3),
              "{}: {}: expected (batch, dstate) or (batch, ngroups, dstate), got {}", kOp, name,
              x.describe());
  if (x.rank == 2) {
    check_operand(kOp, name, x, {u.batch, u.dstate});
    return x.insert_axis(1);
  }
  check_operand(kOp, name, x, {u.batch, x.dim(1), u.dstate});
  return x;
}

// Without heads: a group of channels is a head of its own.
void split_heads(Update& u) {
  const int64_t heads = u.ngroups, headdim = u.headdim / heads;
  const auto split = [&](ArrayView& x, int axis) {
    if (x) x = x.select(axis - 1, 0).split(axis - 1, heads, headdim);
  };
  const auto split_rows = [&](ArrayView& x) {
    if (!x) return;
    ArrayView rows = x;
    rows.shape[1] = heads;
    rows.stride[1] = headdim * x.step(2);
    rows.shape[2] = headdim;
    x = rows;
  };
  split_rows(u.state);
  split_rows(u.x);
  split_rows(u.dt);
  split_rows(u.z);
  split_rows(u.out);
  split(u.A, 1);
  split(u.D, 1);
  split(u.dt_bias, 1);
  u.nheads = heads;
  u.headdim = headdim;
}

// True if a number of the head stands for all of its channels.
bool tied(const ArrayView& x, int axis) {
  return !x || x.dim(axis) == 1 || x.step(axis) == 0;
}

Update checked(const SelectiveStateUpdateArgs& a) {
  const bool heads = a.state.given && a.state.rank == 4;
  if (!heads) check_rank(kOp, "state", a.state, 3);
  check_float(kOp, "state", a.state);
  check_output(kOp, "state", a.state);
  const auto with_head = [&](const ArrayView& x, int axis) {
    return heads || !x ? x : x.insert_axis(axis);
  };
  Update u;
  u.state = with_head(a.state, 1);
  u.nheads = u.state.dim(1);
  u.headdim = u.state.dim(2);
  u.dstate = u.state.dim(3);
  check_rank(kOp, "x", a.x, heads ? 3 : 2);
  u.batch = a.x.dim(0);
  const auto check_rows = [&](std::string_view name, const ArrayView& x) {
    if (heads) {
      check_operand(kOp, name, x, {u.batch, u.nheads, u.headdim});
    } else {
      check_operand(kOp, name, x, {u.batch, u.headdim});
    }
    return with_head(x, 1);
  };
  const auto check_channels = [&](std::string_view name, const ArrayView& x) {
    if (!x) return x;
    if (heads) {
      check_operand(kOp, name, x, {u.nheads, u.headdim});
    } else {
      check_operand(kOp, name, x, {u.headdim});
    }
    return with_head(x, 0);
  };
  u.x = check_rows("x", a.x);
  u.dt = check_rows("dt", a.dt);
  if (heads) {
    check_operand(kOp, "A", a.A, {u.nheads, u.headdim, u.dstate});
  } else {
    check_operand(kOp, "A", a.A, {u.headdim, u.dstate});
  }
  u.A = with_head(a.A, 0);
  u.B = with_groups("B", a.B, u);
  u.C = with_groups("C", a.C, u);
  u.ngroups = u.B.dim(1);
  check_shape(kOp, "C", u.C, {u.batch, u.ngroups, u.dstate});
  const int64_t whole = heads ? u.nheads : u.headdim;
  ADDER_CHECK(u.ngroups > 0 && whole % u.ngroups == 0,
              "{}: B: expected a number of groups that divides {} = {}, got {}", kOp,
              heads ? "nheads" : "dim", whole, u.ngroups);
  u.D = check_channels("D", a.D);
  if (a.z) u.z = check_rows("z", a.z);
  u.dt_bias = check_channels("dt_bias", a.dt_bias);
  u.out = check_rows("out", a.out);
  check_output(kOp, "out", a.out);
  // A batch of nothing may be of any size.
  u.slot = a.out.empty() ? nullptr
                         : checked_slots(kOp, "state_batch_indices", a.state_batch_indices, u.batch,
                                         "state", a.state.dim(0));
  if (!heads && u.ngroups > 1) split_heads(u);
  return u;
}

// Heads [h0, h0 + count) of row b with numbers per head: the Mamba-2 step.
void update_heads(const Update& u, int64_t b, int64_t h0, int64_t count, bool softplus) {
  const int64_t group_heads = u.nheads / u.ngroups, group = h0 / group_heads;
  const int64_t channels = count * u.headdim;
  Scratch scratch(3 * Scratch::padded(count) + 4 * Scratch::padded(channels) +
                  2 * Scratch::padded(u.dstate) + Scratch::padded(channels * u.dstate));
  adder::SsdScanArgs args;
  const auto per_head = [&](const ArrayView& x) { return x ? x.slice(0, h0, count) : x; };
  args.A_log2e =
      load_vector(u.A.select(2, 0).select(1, 0).slice(0, h0, count), scratch.take(count));
  float* A = args.A_log2e.ptr<float>();
  for (int64_t h = 0; h < count; ++h) A[h] *= std::numbers::log2e_v<float>;
  args.dt = load_vector(u.dt.select(0, b).select(1, 0).slice(0, h0, count), scratch.take(count))
                .reshape({1, count});
  if (u.dt_bias)
    args.dt_bias = load_vector(u.dt_bias.select(1, 0).slice(0, h0, count), scratch.take(count));
  args.dt_softplus = softplus;
  args.dt_min = -std::numeric_limits<float>::infinity();
  const auto row = [&](const ArrayView& x) {
    return x ? x.select(0, b).slice(0, h0, count).insert_axis(0) : x;
  };
  args.x = load_heads(row(u.x), scratch.take(channels));
  args.z = load_heads(row(u.z), scratch.take(channels));
  args.D = load_rows(per_head(u.D), scratch.take(channels));
  const auto coefficients = [&](const ArrayView& x) {
    return x.select(0, b).slice(0, group, 1).insert_axis(0);
  };
  args.B = load_heads(coefficients(u.B), scratch.take(u.dstate));
  args.C = load_heads(coefficients(u.C), scratch.take(u.dstate));
  // The state is float32 and contiguous where a model keeps it: worked on where it lies.
  const ArrayView state = u.state.select(0, u.slot[b]).slice(0, h0, count);
  float* copy = scratch.take(channels * u.dstate);
  const Tensor held = load_heads(state, copy);
  args.ssm_state = held;
  args.ssm_state.rank = 4;
  args.ssm_state.shape = {1, count, u.headdim, u.dstate};
  args.ssm_state.stride = {0, held.stride[0], held.stride[1], 1};
  const ArrayView to = row(u.out);
  args.out = output_heads(to, scratch.take(channels));
  const int32_t seq_start[] = {0, 1}, slot[] = {0};
  args.batch = {seq_start, slot};
  local_backend().ssd_scan(args);
  flush(args.out, to);
  flush(held, state);
}

// Channels [p0, p0 + width) of head h of row b: the Mamba-1 step.
void update_channels(const Update& u, int64_t b, int64_t h, int64_t p0, int64_t width,
                     bool softplus) {
  const auto row = [&](const ArrayView& x) {
    return x ? x.select(0, b).select(0, h).slice(0, p0, width).insert_axis(0) : x;
  };
  const auto channels = [&](const ArrayView& x) {
    return x ? x.select(0, h).slice(0, p0, width) : x;
  };
  const int64_t group = h / (u.nheads / u.ngroups);
  ScanTile tile;
  tile.u = row(u.x);
  tile.delta = row(u.dt);
  tile.z = row(u.z);
  tile.out = row(u.out);
  tile.A = channels(u.A);
  tile.B = u.B.select(0, b).slice(0, group, 1);
  tile.C = u.C.select(0, b).slice(0, group, 1);
  tile.D = channels(u.D);
  tile.delta_bias = channels(u.dt_bias);
  tile.delta_softplus = softplus;
  tile.growing = u.growing;
  tile.state_in = tile.state_out = u.state.select(0, u.slot[b]).select(0, h).slice(0, p0, width);
  scan_tile(tile);
}

}  // namespace

void selective_state_update(const SelectiveStateUpdateArgs& a) {
  Update u = checked(a);
  if (a.out.empty()) return;
  u.growing = any_above_zero(a.A);
  u.per_head = a.state.rank == 4 && !u.growing && u.dt.step(2) == 0 && tied(u.A, 1) &&
               tied(u.A, 2) && tied(u.dt_bias, 1);
  // A task has heads of one group, or channels of one head.
  const int64_t group_heads = u.nheads / u.ngroups;
  const int64_t heads =
      u.per_head ? std::clamp<int64_t>(u.batch * u.nheads / (2 * get_num_threads()), 1, group_heads)
                 : 1;
  const int64_t width =
      u.per_head ? u.headdim : tile_width(u.headdim, u.batch * u.nheads * u.headdim);
  const int64_t parts =
      u.per_head ? (group_heads + heads - 1) / heads : (u.headdim + width - 1) / width;
  const int64_t per_row = (u.per_head ? u.ngroups : u.nheads) * parts;
  const int64_t work = heads * width * (u.dstate + 4) * (u.per_head ? 1 : 4);
  run_tasks(u.batch * per_row, work, [&](int64_t task) {
    const int64_t b = task / per_row, outer = task % per_row / parts, part = task % parts;
    if (u.per_head) {
      const int64_t h0 = outer * group_heads + part * heads;
      const int64_t h1 = std::min(h0 + heads, (outer + 1) * group_heads);
      if (u.slot[b] < 0) return fill_zero(u.out.select(0, b).slice(0, h0, h1 - h0));
      return update_heads(u, b, h0, h1 - h0, a.dt_softplus);
    }
    const int64_t p0 = part * width, count = std::min(width, u.headdim - p0);
    if (u.slot[b] < 0) return fill_zero(u.out.select(0, b).select(0, outer).slice(0, p0, count));
    update_channels(u, b, outer, p0, count, a.dt_softplus);
  });
}

bool on_device(DeviceCall& call, const SelectiveStateUpdateArgs& a) {
  const Update u = checked(a);
  if (a.out.empty()) return true;
  StateUpdateArrays arrays{u.state, u.x, u.dt, u.z,       u.out,         u.A,
                           u.B,     u.C, u.D,  u.dt_bias, a.dt_softplus, {}};
  if (a.state_batch_indices) arrays.slots = {u.slot, static_cast<size_t>(u.batch)};
  call.device().state_update(arrays);
  return true;
}

}  // namespace adder::ops
