// The device form of ops/mamba_chunk_scan.h: every sequence of a row has a slot of the state.
#include <algorithm>
#include <numbers>
#include <vector>

#include "ops/dispatch.h"
#include "ops/segments.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

// The sequences of rows [begin, begin + count) of a batch, as the kernels take them.
class Sequences {
 public:
  Sequences(const MambaChunkScanArgs& a, const ChunkScanSizes& s, int64_t begin, int64_t count)
      : a_(a), s_(s), begin_(begin) {
    for (int64_t row = 0; row < count; ++row) add_row(row);
  }

  int64_t states() const { return static_cast<int64_t>(initial_.size()); }
  int64_t sequences() const { return static_cast<int64_t>(slot_.size()); }
  PackedBatch packed() const { return {start_, slot_}; }

  // states (states(), nheads, headdim, dstate), zero so far.
  void load(ArrayDevice& device, const ArrayView& states) const {
    if (!a_.initial_states) return;
    for (size_t i = 0; i < initial_.size(); ++i)
      if (initial_[i] >= 0)
        device.copy(a_.initial_states.select(0, initial_[i]),
                    states.select(0, static_cast<int64_t>(i)));
  }

  void store(ArrayDevice& device, const ArrayView& states) const {
    for (size_t row = 0; a_.final_states && row < last_.size(); ++row)
      device.copy(states.select(0, last_[row]),
                  a_.final_states.select(0, begin_ + static_cast<int64_t>(row)));
    for (size_t i = 0; a_.varlen_states && i < varlen_.size(); ++i)
      device.copy(states.select(0, varlen_[i]),
                  a_.varlen_states.select(0, static_cast<int64_t>(i)));
  }

 private:
  void add_row(int64_t row) {
    const int64_t b = begin_ + row;
    // The row's state where it has no sequence of its own.
    int32_t last = -1;
    int64_t before = -1;
    std::vector<int32_t> of_sequence(static_cast<size_t>(a_.varlen_states ? s_.sequences : 0), -1);
    for (const Segment& segment : row_segments(a_.seq_idx ? a_.seq_idx.select(0, b) : a_.seq_idx,
                                               a_.cu_seqlens, s_.seqlen)) {
      start_.push_back(start_.back() + static_cast<int32_t>(segment.end - segment.begin));
      if (segment.sequence < 0) {
        slot_.push_back(-1);
        continue;
      }
      // seq_idx may change inside a sequence of cu_seqlens, which then goes on from 0.
      last = add_state(segment.sequence == before ? -1 : initial_of(b, segment.sequence));
      before = segment.sequence;
      slot_.push_back(last);
      if (a_.varlen_states) of_sequence[static_cast<size_t>(segment.sequence)] = last;
    }
    if (a_.final_states) last_.push_back(last >= 0 ? last : add_state(initial_of(b, 0)));
    for (size_t i = 0; i < of_sequence.size(); ++i)  // there is one row then
      varlen_.push_back(of_sequence[i] >= 0 ? of_sequence[i]
                                            : add_state(initial_of(b, static_cast<int64_t>(i))));
  }

  // The entry of initial_states that a sequence of row b begins from; -1: from 0.
  int64_t initial_of(int64_t b, int64_t sequence) const {
    const bool for_each = a_.cu_seqlens && a_.initial_states.dim(0) == s_.sequences;
    if (!a_.initial_states || (!for_each && sequence > 0) || (for_each && sequence >= s_.sequences))
      return -1;
    return for_each ? sequence : b;
  }

  int32_t add_state(int64_t initial) {
    initial_.push_back(initial);
    return static_cast<int32_t>(initial_.size() - 1);
  }

  const MambaChunkScanArgs& a_;
  const ChunkScanSizes& s_;
  int64_t begin_;
  std::vector<int32_t> start_ = {0}, slot_;
  std::vector<int64_t> initial_;        // of each state
  std::vector<int32_t> last_, varlen_;  // the states that are results
};

constexpr int64_t kMostSequences = 65535;  // of a grid

}  // namespace

bool on_device(DeviceCall& call, const MambaChunkScanArgs& a) {
  const ChunkScanSizes s = checked_sizes(call.op(), a);
  if (a.out.empty() && a.final_states.empty() && a.varlen_states.empty()) return true;
  if (a.out.empty() || s.dstate == 0 || !(a.dt_min >= 0.0f)) return false;
  // The kernels take decays of at most 1 only, as on the host.
  if (any_above_zero(call.to_host(a.A))) return false;
  const int64_t rows = device_rows(s.batch, s.seqlen, 3 * s.nheads * s.headdim);
  if (rows == 0) return false;
  std::vector<Sequences> parts;
  int64_t most_states = 0;
  for (int64_t b = 0; b < s.batch; b += rows) {
    parts.emplace_back(a, s, b, std::min(rows, s.batch - b));
    if (parts.back().sequences() > kMostSequences) return false;
    most_states = std::max(most_states, parts.back().states());
  }
  adder::SsdScanArgs args;
  args.A_log2e = call.packed(a.A, std::numbers::log2e_v<float>);
  args.D = call.packed(a.D);
  args.dt_bias = call.packed(a.dt_bias);
  args.dt_softplus = a.dt_softplus;
  args.dt_min = a.dt_min;
  args.dt_max = a.dt_max;
  const ArrayView memory = call.temporary({most_states, s.nheads, s.headdim, s.dstate});
  PackedRows x(call), dt(call), z(call), B(call), C(call), out(call);
  int64_t b = 0;
  for (const Sequences& part : parts) {
    const auto cut = [&](const ArrayView& v) {
      return v ? v.slice(0, b, std::min(rows, s.batch - b)) : v;
    };
    args.x = x.read(cut(a.x));
    args.dt = dt.read(cut(a.dt));
    args.z = z.read(cut(a.z));
    args.B = B.read(cut(a.B));
    args.C = C.read(cut(a.C));
    args.out = out.write(cut(a.out));
    const ArrayView states = memory.slice(0, 0, part.states());
    call.device().zero(states.data, static_cast<size_t>(states.size()) * sizeof(float));
    part.load(call.device(), states);
    args.ssm_state = {states.data, DType::kF32, {part.states(), s.nheads, s.headdim, s.dstate}};
    args.batch = part.packed();
    call.device().ssd_scan(args);
    out.flush();
    part.store(call.device(), states);
    b += rows;
  }
  return true;
}

}  // namespace adder::ops
