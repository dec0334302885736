#include "ops/mamba_chunk_scan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "ops/plain_ssd.h"
#include "ops/runtime.h"
#include "ops/segments.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

// Tokens of a piece; a multiple of the backends' alignment, so that bits do not depend on it.
constexpr int64_t kChunkPiece = 2 * kSsdChunkAlign;
// Heads of a task share its copies of B and C. With 64 channels each, tiles of 8 heads are 256 KB.
constexpr int64_t kMaxHeads = 8;

// Heads [h0, h0 + count) of one group in row b.
class HeadBlock {
 public:
  HeadBlock(const MambaChunkScanArgs& a, const ChunkScanSizes& s, bool plain, int64_t b, int64_t h0,
            int64_t count)
      : a_(a),
        s_(s),
        plain_(plain),
        b_(b),
        h0_(h0),
        heads_(count),
        group_(h0 / (s.nheads / s.ngroups)),
        piece_(std::min(kChunkPiece, s.seqlen)),
        channels_(count * s.headdim),
        scratch_(2 * Scratch::padded(count) + Scratch::padded(channels_) +
                 Scratch::padded(channels_ * s.dstate) + Scratch::padded(piece_ * count) +
                 3 * Scratch::padded(piece_ * channels_) + 2 * Scratch::padded(piece_ * s.dstate)),
        state_(scratch_.take(channels_ * s.dstate)),
        x_(scratch_.take(piece_ * channels_)),
        z_(scratch_.take(piece_ * channels_)),
        out_(scratch_.take(piece_ * channels_)),
        dt_(scratch_.take(piece_ * count)),
        B_(scratch_.take(piece_ * s.dstate)),
        C_(scratch_.take(piece_ * s.dstate)) {
    const auto heads = [&](const ArrayView& x) { return x ? x.slice(0, h0_, heads_) : x; };
    args_.A_log2e = load_vector(heads(a.A), scratch_.take(count));
    float* A = args_.A_log2e.ptr<float>();
    for (int64_t h = 0; h < count; ++h) A[h] *= std::numbers::log2e_v<float>;
    args_.dt_bias = load_vector(heads(a.dt_bias), scratch_.take(count));
    float* D = scratch_.take(channels_);
    args_.D = a.D && a.D.rank == 2 ? load_rows(heads(a.D), D) : load_vector(heads(a.D), D);
    args_.dt_softplus = a.dt_softplus;
    args_.dt_min = a.dt_min;
    args_.dt_max = a.dt_max;
    args_.ssm_state = {state_, DType::kF32, {1, heads_, s.headdim, s.dstate}};
  }

  void run(const std::vector<Segment>& segments) {
    load_initial(0);
    int64_t before = -1;
    std::vector<bool> seen(static_cast<size_t>(s_.sequences));
    for (const Segment& segment : segments) {
      if (segment.sequence < 0) {
        fill_zero(rows(a_.out).slice(0, segment.begin, segment.end - segment.begin));
        continue;
      }
      if (segment.sequence == before) {
        clear();  // seq_idx changed inside a sequence of cu_seqlens
      } else {
        load_initial(segment.sequence);
      }
      before = segment.sequence;
      scan(segment.begin, segment.end);
      if (!a_.varlen_states) continue;
      store(a_.varlen_states, segment.sequence);
      seen[static_cast<size_t>(segment.sequence)] = true;
    }
    if (a_.final_states) store(a_.final_states, b_);
    if (!a_.varlen_states) return;
    for (int64_t i = 0; i < s_.sequences; ++i) {  // without a step of their own
      if (seen[static_cast<size_t>(i)]) continue;
      load_initial(i);
      store(a_.varlen_states, i);
    }
  }

 private:
  // (seqlen, heads of the block, ...)
  ArrayView rows(const ArrayView& x) const { return x ? x.select(0, b_).slice(1, h0_, heads_) : x; }

  void clear() { std::fill_n(state_, channels_ * s_.dstate, 0.0f); }

  void load_initial(int64_t sequence) {
    const bool for_each = a_.cu_seqlens && a_.initial_states.dim(0) == s_.sequences;
    if (!a_.initial_states || (!for_each && sequence > 0) ||
        (for_each && sequence >= s_.sequences)) {
      clear();
      return;
    }
    const ArrayView from =
        a_.initial_states.select(0, for_each ? sequence : b_).slice(0, h0_, heads_);
    for (int64_t h = 0; h < heads_; ++h)
      gather(from.select(0, h), state_ + h * s_.headdim * s_.dstate, s_.dstate);
  }

  void store(const ArrayView& states, int64_t index) const {
    const ArrayView to = states.select(0, index).slice(0, h0_, heads_);
    for (int64_t h = 0; h < heads_; ++h)
      scatter(state_ + h * s_.headdim * s_.dstate, s_.dstate, to.select(0, h));
  }

  void scan(int64_t begin, int64_t end) {
    const auto group = [&](const ArrayView& x) { return x.select(0, b_).slice(1, group_, 1); };
    for (int64_t t0 = begin; t0 < end; t0 += kChunkPiece) {
      const int64_t count = std::min(kChunkPiece, end - t0);
      const auto cut = [&](const ArrayView& x) { return x ? x.slice(0, t0, count) : x; };
      args_.x = load_heads(cut(rows(a_.x)), x_);
      args_.z = load_heads(cut(rows(a_.z)), z_);
      args_.dt = load_rows(cut(rows(a_.dt)), dt_);
      args_.B = load_heads(cut(group(a_.B)), B_);
      args_.C = load_heads(cut(group(a_.C)), C_);
      const ArrayView to = cut(rows(a_.out));
      args_.out = output_heads(to, out_);
      const int32_t seq_start[] = {0, static_cast<int32_t>(count)}, slot[] = {0};
      args_.batch = {seq_start, slot};
      if (plain_) {
        plain_ssd(args_);
      } else {
        local_backend().ssd_scan(args_);
      }
      flush(args_.out, to);
    }
  }

  const MambaChunkScanArgs& a_;
  const ChunkScanSizes& s_;
  bool plain_;
  int64_t b_, h0_, heads_, group_, piece_, channels_;
  Scratch scratch_;
  float *state_, *x_, *z_, *out_, *dt_, *B_, *C_;
  adder::SsdScanArgs args_;
};

}  // namespace

ChunkScanSizes checked_sizes(std::string_view op, const MambaChunkScanArgs& a) {
  check_rank(op, "x", a.x, 4);
  check_rank(op, "B", a.B, 4);
  ChunkScanSizes s;
  s.batch = a.x.dim(0);
  s.seqlen = a.x.dim(1);
  s.nheads = a.x.dim(2);
  s.headdim = a.x.dim(3);
  s.ngroups = a.B.dim(2);
  s.dstate = a.B.dim(3);
  check_float(op, "x", a.x);
  check_operand(op, "dt", a.dt, {s.batch, s.seqlen, s.nheads});
  check_operand(op, "A", a.A, {s.nheads});
  check_operand(op, "B", a.B, {s.batch, s.seqlen, s.ngroups, s.dstate});
  check_operand(op, "C", a.C, {s.batch, s.seqlen, s.ngroups, s.dstate});
  ADDER_CHECK(s.ngroups > 0 && s.nheads % s.ngroups == 0,
              "{}: B: expected a number of groups that divides nheads = {}, got {}", op, s.nheads,
              s.ngroups);
  if (a.D && a.D.rank == 2) {
    check_operand(op, "D", a.D, {s.nheads, s.headdim});
  } else if (a.D) {
    check_operand(op, "D", a.D, {s.nheads});
  }
  if (a.z) check_operand(op, "z", a.z, {s.batch, s.seqlen, s.nheads, s.headdim});
  if (a.dt_bias) check_operand(op, "dt_bias", a.dt_bias, {s.nheads});
  if (a.seq_idx) {
    check_shape(op, "seq_idx", a.seq_idx, {s.batch, s.seqlen});
    check_integer(op, "seq_idx", a.seq_idx);
  }
  s.sequences = s.batch;
  if (a.cu_seqlens) {
    ADDER_CHECK(s.batch == 1, "{}: x: expected a batch of 1 together with cu_seqlens, got {}", op,
                s.batch);
    check_cu_seqlens(op, a.cu_seqlens, s.seqlen);
    s.sequences = a.cu_seqlens.dim(0) - 1;
  }
  if (a.initial_states) {
    check_rank(op, "initial_states", a.initial_states, 4);
    const bool for_rows = a.initial_states.dim(0) == s.batch;
    check_operand(op, "initial_states", a.initial_states,
                  {for_rows ? s.batch : s.sequences, s.nheads, s.headdim, s.dstate});
  }
  // Also refuses NaN, which no comparison accepts.
  ADDER_CHECK(a.dt_min <= a.dt_max,
              "{}: dt_limit: expected (low, high) with low <= high, got ({}, {})", op, a.dt_min,
              a.dt_max);
  check_operand(op, "out", a.out, {s.batch, s.seqlen, s.nheads, s.headdim});
  check_output(op, "out", a.out);
  if (a.final_states) {
    check_operand(op, "final_states", a.final_states, {s.batch, s.nheads, s.headdim, s.dstate});
    check_output(op, "final_states", a.final_states);
  }
  ADDER_CHECK(!a.varlen_states || a.cu_seqlens,
              "{}: cu_seqlens: expected it with return_varlen_states, got None", op);
  if (a.varlen_states) {
    check_operand(op, "varlen_states", a.varlen_states,
                  {s.sequences, s.nheads, s.headdim, s.dstate});
    check_output(op, "varlen_states", a.varlen_states);
  }
  return s;
}

void mamba_chunk_scan_combined(const MambaChunkScanArgs& a, std::string_view op) {
  const ChunkScanSizes s = checked_sizes(op, a);
  if (a.out.empty() && a.final_states.empty() && a.varlen_states.empty()) return;
  // The backends take decays of at most 1 only. Decided for the whole call: the bits of a head must
  // not depend on its neighbours.
  const bool plain = !(a.dt_min >= 0.0f) || any_above_zero(a.A);
  std::vector<std::vector<Segment>> segments;
  for (int64_t b = 0; b < s.batch; ++b)
    segments.push_back(
        row_segments(a.seq_idx ? a.seq_idx.select(0, b) : a.seq_idx, a.cu_seqlens, s.seqlen));
  const int64_t group = s.nheads / s.ngroups;
  const int64_t heads = std::clamp<int64_t>(s.batch * s.nheads / (2 * get_num_threads()), 1,
                                            std::min(group, kMaxHeads));
  const int64_t blocks = (group + heads - 1) / heads, per_row = s.ngroups * blocks;
  const int64_t work = std::max<int64_t>(1, s.seqlen) * heads * s.headdim * (s.dstate + 4);
  run_tasks(s.batch * per_row, work, [&](int64_t task) {
    const int64_t b = task / per_row, g = task % per_row / blocks, begin = task % blocks * heads;
    HeadBlock block(a, s, plain, b, g * group + begin, std::min(heads, group - begin));
    block.run(segments[static_cast<size_t>(b)]);
  });
}

}  // namespace adder::ops
