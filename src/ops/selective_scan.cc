#include "ops/selective_scan.h"

#include <algorithm>
#include <numbers>
#include <numeric>

#include "core/error.h"
#include "ops/dispatch.h"
#include "ops/plain_scan.h"
#include "ops/runtime.h"
#include "ops/scan_tile.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

// Operands as the loops want them.
struct Scan {
  int64_t batch, dim, seqlen, dstate;
  ArrayView u, delta, z, out;  // (batch, seqlen, dim)
  ArrayView B, C;              // (batch, groups, seqlen, dstate), or constant: (dim, dstate)
  bool constant_B, constant_C;
};

// B or C: checks the shape, and puts the time before the state.
ArrayView coefficient(std::string_view op, std::string_view name, const ArrayView& x, const Scan& s,
                      bool is_complex, bool* constant) {
  ADDER_CHECK(x.given && x.rank >= 2 && x.rank <= 4,
              "{}: {}: expected (dim, dstate), (batch, dstate, seqlen) or (batch, groups, dstate, "
              "seqlen), got {}",
              op, name, x.describe());
  *constant = x.rank == 2;
  if (*constant) {
    check_shape(op, name, x, {s.dim, s.dstate});
    check_float(op, name, x, is_complex);
    return x;
  }
  check_float(op, name, x);
  const int64_t columns = s.seqlen * (is_complex ? 2 : 1);
  if (x.rank == 3) check_shape(op, name, x, {s.batch, s.dstate, columns});
  const ArrayView grouped = x.rank == 3 ? x.insert_axis(1) : x;
  const int64_t groups = grouped.dim(1);
  check_shape(op, name, grouped, {s.batch, groups, s.dstate, columns});
  ADDER_CHECK(groups > 0 && s.dim % groups == 0,
              "{}: {}: expected a number of groups that divides dim = {}, got {}", op, name, s.dim,
              groups);
  return grouped.permute({0, 1, 3, 2});
}

Scan checked(std::string_view op, const SelectiveScanFnArgs& a) {
  check_rank(op, "u", a.u, 3);
  check_rank(op, "A", a.A, 2);
  Scan s;
  s.batch = a.u.dim(0);
  s.dim = a.u.dim(1);
  s.seqlen = a.u.dim(2);
  s.dstate = a.A.dim(1);
  check_float(op, "u", a.u);
  check_operand(op, "delta", a.delta, {s.batch, s.dim, s.seqlen});
  check_shape(op, "A", a.A, {s.dim, s.dstate});
  check_float(op, "A", a.A, true);
  const bool is_complex = a.A.is_complex;
  s.B = coefficient(op, "B", a.B, s, is_complex, &s.constant_B);
  s.C = coefficient(op, "C", a.C, s, is_complex, &s.constant_C);
  if (a.D) check_operand(op, "D", a.D, {s.dim});
  if (a.z) check_operand(op, "z", a.z, {s.batch, s.dim, s.seqlen});
  if (a.delta_bias) check_operand(op, "delta_bias", a.delta_bias, {s.dim});
  if (a.initial_state) {
    check_shape(op, "initial_state", a.initial_state, {s.batch, s.dim, s.dstate});
    check_float(op, "initial_state", a.initial_state, is_complex);
  }
  check_operand(op, "out", a.out, {s.batch, s.dim, s.seqlen});
  check_output(op, "out", a.out);
  if (a.last_state) {
    check_shape(op, "last_state", a.last_state, {s.batch, s.dim, s.dstate});
    check_output(op, "last_state", a.last_state);
    ADDER_CHECK(a.last_state.is_complex == is_complex, "{}: last_state: expected {}, got {}", op,
                is_complex ? "complex64" : "float32", a.last_state.describe());
  }
  s.u = a.u.permute({0, 2, 1});
  s.delta = a.delta.permute({0, 2, 1});
  s.z = a.z ? a.z.permute({0, 2, 1}) : a.z;
  s.out = a.out.permute({0, 2, 1});
  return s;
}

// One row of the batch and channels [c0, c0 + width), which lie in one group of B and one of C.
void scan_channels(const SelectiveScanFnArgs& a, const Scan& s, bool growing, int64_t b, int64_t c0,
                   int64_t width) {
  const auto rows = [&](const ArrayView& x) { return x ? x.select(0, b).slice(1, c0, width) : x; };
  const auto vector = [&](const ArrayView& x) { return x ? x.slice(0, c0, width) : x; };
  ScanTile tile;
  tile.u = rows(s.u);
  tile.delta = rows(s.delta);
  tile.z = rows(s.z);
  tile.out = rows(s.out);
  tile.A = a.A.slice(0, c0, width);
  tile.B = s.B.select(0, b).select(0, c0 / (s.dim / s.B.dim(1)));
  tile.C = s.C.select(0, b).select(0, c0 / (s.dim / s.C.dim(1)));
  tile.D = vector(a.D);
  tile.delta_bias = vector(a.delta_bias);
  tile.delta_softplus = a.delta_softplus;
  tile.growing = growing;
  if (a.initial_state) tile.state_in = a.initial_state.select(0, b).slice(0, c0, width);
  if (a.last_state) tile.state_out = a.last_state.select(0, b).slice(0, c0, width);
  scan_tile(tile);
}

}  // namespace

void selective_scan_fn(const SelectiveScanFnArgs& a, std::string_view op) {
  const Scan s = checked(op, a);
  if (a.out.empty() && a.last_state.empty()) return;
  const int64_t channel_work = std::max<int64_t>(1, s.seqlen) * (s.dstate + 4);
  if (a.A.is_complex || s.constant_B || s.constant_C) {
    const auto channel = [&](const ArrayView& x, int64_t b, int64_t d) {
      return x ? x.select(0, b).select(1, d) : x;
    };
    run_tasks(s.batch * s.dim, 8 * channel_work, [&](int64_t task) {
      const int64_t b = task / s.dim, d = task % s.dim;
      PlainScan p;
      p.u = channel(s.u, b, d);
      p.delta = channel(s.delta, b, d);
      p.z = channel(s.z, b, d);
      p.out = channel(s.out, b, d);
      p.A = a.A.select(0, d);
      p.B = s.constant_B ? s.B.select(0, d) : s.B.select(0, b).select(0, d / (s.dim / s.B.dim(1)));
      p.C = s.constant_C ? s.C.select(0, d) : s.C.select(0, b).select(0, d / (s.dim / s.C.dim(1)));
      p.D = a.D ? load_float(a.D.select(0, d).data, a.D.dtype) : 0.0f;
      p.delta_bias =
          a.delta_bias ? load_float(a.delta_bias.select(0, d).data, a.delta_bias.dtype) : 0.0f;
      p.delta_softplus = a.delta_softplus;
      if (a.initial_state) p.state_in = a.initial_state.select(0, b).select(0, d);
      if (a.last_state) p.state_out = a.last_state.select(0, b).select(0, d);
      plain_scan(p);
    });
    return;
  }
  // A block of channels lies in one group of B and in one of C.
  const int64_t group_B = s.dim / s.B.dim(1), group_C = s.dim / s.C.dim(1);
  const int64_t group = std::gcd(group_B, group_C);
  const bool growing = a.delta_softplus && any_above_zero(a.A);
  const int64_t width = tile_width(group, s.batch * s.dim);
  const int64_t blocks = (group + width - 1) / width;  // of a group
  const int64_t per_row = s.dim / group * blocks;
  run_tasks(s.batch * per_row, width * channel_work, [&](int64_t task) {
    const int64_t b = task / per_row, g = task % per_row / blocks;
    const int64_t begin = task % blocks * width;
    scan_channels(a, s, growing, b, g * group + begin, std::min(width, group - begin));
  });
}

// The contract has one number of groups for B and C: the one with fewer repeats its own.
bool on_device(DeviceCall& call, const SelectiveScanFnArgs& a) {
  const Scan s = checked(call.op(), a);
  if (a.out.empty() && a.last_state.empty()) return true;
  if (a.A.is_complex || s.constant_B || s.constant_C || a.out.empty() || s.dstate == 0)
    return false;
  const int64_t rows = device_rows(s.batch, s.seqlen, 4 * s.dim);
  if (rows == 0) return false;
  const int64_t groups = s.dim / std::gcd(s.dim / s.B.dim(1), s.dim / s.C.dim(1));
  const auto grouped = [&](const ArrayView& x) {
    const ArrayView steps = x.permute({0, 2, 1, 3});
    return x.dim(1) == groups ? steps : steps.insert_axis(3, groups / x.dim(1));
  };
  const ArrayView B = grouped(s.B), C = grouped(s.C);
  adder::SelectiveScanArgs args;
  args.A_log2e = call.packed(a.A.permute({1, 0}), std::numbers::log2e_v<float>);
  args.D = call.packed(a.D);
  args.delta_bias = call.packed(a.delta_bias);
  args.delta_softplus = a.delta_softplus;
  const ArrayView state = call.temporary({rows, s.dstate, s.dim});
  PackedRows u(call), delta(call), z(call), B_rows(call), C_rows(call), out(call);
  for (int64_t b = 0; b < s.batch; b += rows) {
    const int64_t count = std::min(rows, s.batch - b);
    const auto cut = [&](const ArrayView& x) { return x ? x.slice(0, b, count) : x; };
    const auto coefficients = [&](PackedRows& packed, const ArrayView& x) {
      Tensor t = packed.read(cut(x));
      return t.rank == 3 ? t : t.reshape({count * s.seqlen, groups, s.dstate});
    };
    args.u = u.read(cut(s.u));
    args.delta = delta.read(cut(s.delta));
    args.z = z.read(cut(s.z));
    args.B = coefficients(B_rows, B);
    args.C = coefficients(C_rows, C);
    args.out = out.write(cut(s.out));
    const ArrayView states = state.slice(0, 0, count);
    if (a.initial_state) {
      call.device().copy(cut(a.initial_state).permute({0, 2, 1}), states);
    } else {
      call.device().zero(states.data, static_cast<size_t>(states.size()) * sizeof(float));
    }
    args.ssm_state = {states.data, DType::kF32, {count, s.dstate, s.dim}};
    const RowBatch batch(count, s.seqlen);
    args.batch = batch.packed();
    call.device().selective_scan(args);
    out.flush();
    if (a.last_state) call.device().copy(states, cut(a.last_state).permute({0, 2, 1}));
  }
  return true;
}

}  // namespace adder::ops
