// What holds for every operation with a state: cut, packed, stepped, on any number of threads and
// next to anybody, a sequence gives what it gives alone.

#include <numeric>

#include "testing/causal_conv1d_problem.h"
#include "testing/selective_scan_problem.h"
#include "testing/ssd_scan_problem.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

// Small problems of each operation, by token count.
struct Conv {
  static constexpr Tolerance kBar = kDot;
  static auto random(Rng& rng, int64_t tokens) {
    return CausalConv1dProblem::random(rng, tokens, 21, 4);
  }
};
struct Mamba1 {
  static constexpr Tolerance kBar = kScan;
  static auto random(Rng& rng, int64_t tokens) {
    return SelectiveScanProblem::random(rng, tokens, 20, 9, 2);
  }
};
struct Mamba2 {
  static constexpr Tolerance kBar = kScan;
  static auto random(Rng& rng, int64_t tokens) {
    return SsdScanProblem::random(rng, tokens, 4, 12, 9, 2);
  }
};

class Recurrence : public BackendTest {
 protected:
  template <typename F>
  static void for_each_operation(F&& f) {
    {
      SCOPED_TRACE("causal_conv1d");
      f(Conv{});
    }
    {
      SCOPED_TRACE("selective_scan");
      f(Mamba1{});
    }
    {
      SCOPED_TRACE("ssd_scan");
      f(Mamba2{});
    }
  }
};
ADDER_TEST_ALL_TARGETS(Recurrence);

std::vector<int64_t> equal_pieces(int64_t tokens, int64_t piece) {
  std::vector<int64_t> pieces(static_cast<size_t>(tokens / piece), piece);
  if (tokens % piece != 0) pieces.push_back(tokens % piece);
  return pieces;
}

// However a sequence is cut into pieces, outputs and states are those of one pass.
TEST_P(Recurrence, SplitInvariance) {
  Rng rng(51);
  const std::vector<std::vector<int64_t>> cuts = {
      {64, 64, 64, 64},      {1, 37, 100, 118},    {255, 1},
      equal_pieces(256, 1),  equal_pieces(256, 2), equal_pieces(256, 3),
      {3, 0, 61, 1, 0, 191}, {65, 63, 62, 64, 2},
  };
  for_each_operation([&](auto op) {
    const auto p = op.random(rng, 256);
    const auto state = p.random_state(rng);
    const RunResult whole = p.run(*backend_, Batch::single(256), state);
    ASSERT_TRUE(close(whole, p.run(*ref_, Batch::single(256), state), op.kBar));
    for (const auto& cut : cuts)
      EXPECT_TRUE(close(run_pieces(*backend_, p, cut, state), whole, op.kBar))
          << "cut " << cut[0] << ", " << cut[1];
  });
}

// The sizes of the case as it is written: d_model 512, d_state 64, headdim 64.
TEST_P(Recurrence, SplitInvarianceInSize) {
  Rng rng(52);
  const std::vector<int64_t> cut = {1, 37, 100, 118};
  const auto ssd = SsdScanProblem::random(rng, 256, 16, 64, 64);
  const auto ssd_state = ssd.random_state(rng);
  EXPECT_TRUE(close(run_pieces(*backend_, ssd, cut, ssd_state),
                    ssd.run(*backend_, Batch::single(256), ssd_state), kScan));
  const auto scan = SelectiveScanProblem::random(rng, 256, 128, 64);
  const auto scan_state = scan.random_state(rng);
  EXPECT_TRUE(close(run_pieces(*backend_, scan, cut, scan_state),
                    scan.run(*backend_, Batch::single(256), scan_state), kScan));
}

// A prompt, then 40 steps, against one pass; and twice the same bits.
TEST_P(Recurrence, StepsEqualScan) {
  Rng rng(53);
  for_each_operation([&](auto op) {
    for (int64_t prompt : {1, 2, 3, 4, 5, 29, 30, 31, 63, 64, 65, 257}) {
      const auto p = op.random(rng, prompt + 40);
      const std::vector<float> state(static_cast<size_t>(p.state_size()));
      std::vector<int64_t> pieces{prompt};
      pieces.resize(41, 1);
      const RunResult stepped = run_pieces(*backend_, p, pieces, state);
      EXPECT_TRUE(close(stepped, p.run(*backend_, Batch::single(p.tokens), state), op.kBar))
          << "prompt " << prompt;
      if (prompt < 64) {
        EXPECT_TRUE(same_bits(run_pieces(*backend_, p, pieces, state), stepped))
            << "prompt " << prompt;
      }
    }
  });
}

// To the bit: each sequence of a packed batch is its own run, with its own
// initial state, whatever lies beside it.
TEST_P(Recurrence, PackedSequencesAreTheirOwnRuns) {
  Rng rng(54);
  const std::vector<std::vector<int64_t>> packs = {
      {10, 5, 22, -91},                // a buffer of 128 with a padded tail
      {270, 88, 212, 203},             //
      {0, 4, 0, 9, 0},                 // a boundary at 0, empty sequences
      {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},  // decode
      {7, 1, 13, 1},                   // a document of length 1, also at the end
      {64, 64, 1, 63},                 // boundaries on chunk edges
      {20, 3, 70},                     // inside one chunk
      {127, 1},                        // at the last position
      {3, 3, 3, 3, 3, 3, 3, 3, 3, 3},  // documents of 3, rows misaligned
      {-5, 8, -1, 64, 1, -3, 65},      // padding in between
      {2, 2, 1, 3, 1},                 // shorter than the convolution
  };
  for_each_operation([&](auto op) {
    for (const auto& pack : packs) {
      Batch batch;
      const auto n_seqs = static_cast<int32_t>(pack.size());
      for (int32_t i = 0; i < n_seqs; ++i) {
        const int64_t length = pack[static_cast<size_t>(i)];
        batch.add(std::abs(length), length < 0 ? -1 : n_seqs - i);  // slots in reverse, 0 unused
      }
      const auto p = op.random(rng, batch.seq_start.back());
      const auto state = p.random_state(rng, n_seqs + 2);
      EXPECT_TRUE(
          same_bits(p.run(*backend_, batch, state, kOdd), run_singly(*backend_, p, batch, state)))
          << "first lengths " << pack[0] << ", " << pack[1];
    }
  });
}

// The order of a reduction may depend on neither the threads nor the run.
TEST_P(Recurrence, ThreadsAndRunsGiveTheSameBits) {
  Rng rng(55);
  const auto one = GetParam().make(1), three = GetParam().make(3);
  for_each_operation([&](auto op) {
    Batch batch;
    for (int64_t length : {70, 1, 0, 33, 1}) batch.add(length, batch.state_slot.size());
    const auto p = op.random(rng, batch.seq_start.back());
    const auto state = p.random_state(rng, 5);
    const RunResult got = p.run(*backend_, batch, state);
    EXPECT_TRUE(same_bits(p.run(*one, batch, state), got)) << "1 thread";
    EXPECT_TRUE(same_bits(p.run(*three, batch, state), got)) << "3 threads";
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(p.run(*backend_, batch, state), got));
  });
}

// Wide enough for work to be cut into several parts per sequence.
TEST_P(Recurrence, ThreadsGiveTheSameBitsInSize) {
  Rng rng(56);
  const auto one = GetParam().make(1), three = GetParam().make(3);
  Batch batch;
  batch.add(66, 1);
  batch.add(1, 0);
  const auto check = [&](const auto& p) {
    const auto state = p.random_state(rng, 2);
    const RunResult got = p.run(*backend_, batch, state);
    EXPECT_TRUE(same_bits(p.run(*one, batch, state), got)) << "1 thread";
    EXPECT_TRUE(same_bits(p.run(*three, batch, state), got)) << "3 threads";
  };
  check(CausalConv1dProblem::random(rng, 67, 1537, 4));
  check(SelectiveScanProblem::random(rng, 67, 515, 16));
  check(SsdScanProblem::random(rng, 67, 9, 64, 32, 3));
}

// Kernels take aligned and misaligned rows alike: where memory lies must not show in the result.
TEST_P(Recurrence, LayoutsGiveTheSameBits) {
  Rng rng(57);
  for_each_operation([&](auto op) {
    for (int64_t tokens : {1, 2, 33, 70}) {
      const auto p = op.random(rng, tokens);
      const auto state = p.random_state(rng);
      const RunResult got = p.run(*backend_, Batch::single(tokens), state, kPacked);
      for (int64_t lead : {1, 2, 5, 7})
        EXPECT_TRUE(same_bits(
            p.run(*backend_, Batch::single(tokens), state, {.lead = lead, .gap = lead}), got))
            << tokens << " tokens, lead " << lead;
    }
  });
}

// Slots that are not in the batch hold 0x3e bytes, as freed ones might, and
// NaN; rows of padding hold NaN. Neither may show, and no other slot may change by a bit.
TEST_P(Recurrence, SlotHygiene) {
  Rng rng(58);
  for_each_operation([&](auto op) {
    for (int64_t length : {1, 2, 9, 70}) {
      Batch batch;
      batch.add(length, 3);
      batch.add(length, -1);
      batch.add(1, 1);
      auto p = op.random(rng, batch.seq_start.back());
      const int64_t size = p.state_size();
      auto state = p.random_state(rng, 5);
      const RunResult clean = p.run(*backend_, batch, state);
      const float dirt[] = {std::bit_cast<float>(0x3e3e3e3eu), NAN, NAN, NAN, INFINITY};
      for (int64_t slot : {0, 2, 4}) std::fill_n(state.begin() + slot * size, size, dirt[slot]);
      const RunResult got = p.run(*backend_, batch, state);
      EXPECT_TRUE(same_bits(got.out, clean.out));
      for (int64_t slot = 0; slot < 5; ++slot) {
        const auto now = std::span(got.state).subspan(slot * size, size);
        const auto& want = slot % 2 == 0 ? state : clean.state;
        EXPECT_TRUE(same_bits(now, std::span(want).subspan(slot * size, size))) << slot;
      }
      for (int64_t i = length * p.out_width(); i < 2 * length * p.out_width(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(got.out[i]), 0u) << "padding row element " << i;
    }
  });
}

// A freed slot full of NaN, zeroed and given to the next request, is a fresh one; a copied slot
// carries on like the original and leaves it alone.
TEST_P(Recurrence, ZeroedAndCopiedSlots) {
  Rng rng(59);
  for_each_operation([&](auto op) {
    const auto p = op.random(rng, 12);
    const int64_t size = p.state_size();
    std::vector<float> values = p.random_state(rng, 3);
    std::fill_n(values.begin(), size, NAN);
    OpTensor slots(*backend_, {3, size}, kOdd, values);
    backend_->state_zero(slots.view(), 0);
    backend_->state_copy(slots.view(), 1, 2);
    backend_->state_copy(slots.view(), 1, 1);
    std::fill_n(values.begin(), size, 0.0f);
    std::copy_n(values.begin() + size, size, values.begin() + 2 * size);
    const std::vector<float> now = slots.read();
    EXPECT_TRUE(same_bits(now, values));
    const std::vector<float> fresh(static_cast<size_t>(size));
    EXPECT_TRUE(same_bits(p.run(*backend_, Batch::single(12), {now.begin(), now.begin() + size}),
                          p.run(*backend_, Batch::single(12), fresh)));
  });
}

}  // namespace
}  // namespace adder::testing
