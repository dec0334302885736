// Every form of the Mamba-2 scan on the emulator against the reference, at the shapes that have
// fast kernels, with float32 and with bfloat16 activations.

#include "backends/cuda/ssd/ssd_ladder.h"

#include <string_view>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/shim/emulator.h"
#include "backends/cuda/ssd/ssd_kernels.h"
#include "backends/registry.h"
#include "testing/ssd_scan_problem.h"

namespace adder::testing {
namespace {

using cuda_emulated::SsdRung;

// bfloat16 outputs, of inputs that are bfloat16 exactly: rounding is 2^-9 of the result, and twice
// that where a float32 error tips it over. Two parts of the derived operands err by 2^-17 of terms
// that are up to ten times a small result.
constexpr Tolerance kBf16Outputs{1e-4, 0x1p-8};
// The states stay float32: the same two parts, in terms of size up to 10.
constexpr Tolerance kBf16States{1e-4, 2e-4, 1e-7};

class SsdLadder : public ::testing::Test {
 protected:
  RunResult run(const SsdRung& rung, const SsdScanProblem& p, DType activations, const Batch& batch,
                const std::vector<float>& state, const Layout& layout = kPacked) {
    return p.run_as(activations, *memory_, batch, state, layout, [&](const SsdScanArgs& args) {
      ASSERT_TRUE(rung.takes(args)) << rung.name;
      rung.run(context_, args);
    });
  }

  void expect_like_ref(const SsdRung& rung, SsdScanProblem p, const Batch& batch,
                       const std::vector<float>& state, const Layout& layout = kPacked) {
    SCOPED_TRACE(fmt::format("{}: L {} H {} P {} N {} G {}", rung.name, p.tokens, p.n_heads,
                             p.headdim, p.d_state, p.n_groups));
    EXPECT_TRUE(
        close(run(rung, p, DType::kF32, batch, state, layout), p.run(*ref_, batch, state), kScan))
        << "float32";
    for (auto* values : {&p.x, &p.B, &p.C, &p.z}) round_to_bf16(*values);
    const RunResult got = run(rung, p, DType::kBF16, batch, state, layout);
    const RunResult want = p.run(*ref_, batch, state);
    EXPECT_TRUE(close(got.out, want.out, kBf16Outputs)) << "bfloat16 (output)";
    EXPECT_TRUE(close(got.state, want.state, kBf16States)) << "bfloat16 (state)";
  }

  static const SsdRung& rung(std::string_view name) {
    for (const SsdRung& r : cuda_emulated::ssd_ladder())
      if (r.name == name) return r;
    throw std::logic_error("no such rung");
  }

  std::unique_ptr<Backend> ref_ = make_backend("ref");
  std::unique_ptr<Backend> memory_ = cuda_emulated::make_backend(0);
  cuda_emulated::CudaContext context_{0};
};

// All rungs at a shape that all take: whole chunks, tails for the recurrence (below 8 rows) and for
// a padded chunk, an empty sequence and padding.
TEST_F(SsdLadder, EveryRungIsTheRecurrence) {
  Rng rng(81);
  Batch batch;
  for (int64_t length : {70, 0, 7, 8})
    batch.add(length, 4 - static_cast<int32_t>(batch.state_slot.size()));
  batch.add(66, -1);
  batch.add(1, 0);
  auto p = SsdScanProblem::random(rng, batch.seq_start.back(), 2, 64, 64);
  const auto state = p.random_state(rng, 5);
  for (const SsdRung& r : cuda_emulated::ssd_ladder()) {
    expect_like_ref(r, p, batch, state, kOdd);
  }
}

TEST_F(SsdLadder, AnyShapeRungsTakeOddOnes) {
  Rng rng(82);
  for (const char* name : {"serial", "chunked"}) {
    for (const auto& [headdim, d_state] : {std::pair{1, 1}, {5, 9}, {70, 65}}) {
      const auto p = SsdScanProblem::random(rng, 67, 2, headdim, d_state, 2);
      expect_like_ref(rung(name), p, Batch::single(67), p.random_state(rng), kOdd);
    }
  }
}

// Shapes of real models, with heads in pairs and not, and the edges of chunks and tails.
TEST_F(SsdLadder, FusedShapes) {
  Rng rng(83);
  struct Shape {
    int64_t tokens, heads, headdim, d_state, groups;
  };
  for (const Shape& s : {Shape{140, 2, 64, 128, 1},
                         {72, 3, 64, 128, 3},
                         {71, 2, 128, 64, 2},
                         {63, 1, 128, 128, 1},
                         {64, 8, 64, 64, 4},
                         {65, 1, 192, 64, 1}}) {
    const auto p = SsdScanProblem::random(rng, s.tokens, s.heads, s.headdim, s.d_state, s.groups);
    expect_like_ref(rung("fused"), p, Batch::single(s.tokens), p.random_state(rng));
  }
}

TEST_F(SsdLadder, StepShapes) {
  Rng rng(84);
  for (const auto& [headdim, d_state] : {std::pair{64, 128}, {128, 64}, {5, 128}, {80, 64}}) {
    Batch batch;
    for (int32_t slot : {3, 0, -1, 1}) batch.add(1, slot);
    const auto p = SsdScanProblem::random(rng, 4, 4, headdim, d_state, 2);
    expect_like_ref(rung("step"), p, batch, p.random_state(rng, 4));
  }
}

TEST_F(SsdLadder, OptionalOperands) {
  Rng rng(85);
  for (const char* name : {"fused", "chunked", "step"}) {
    auto p = SsdScanProblem::random(rng, 20, 2, 64, 64);
    const auto state = p.random_state(rng);
    p.D = rng.normals(2 * 64);
    p.dt_min = 0.05f, p.dt_max = 0.4f;
    expect_like_ref(rung(name), p, Batch::single(20), state);
    p.D.clear(), p.z.clear(), p.dt_bias.clear();
    p.softplus = false;
    for (float& dt : p.dt) dt = std::abs(dt);
    expect_like_ref(rung(name), p, Batch::single(20), state);
  }
}

// The running sum of dt * A reaches 1e4 before the steps that count (SsdScan has the same test for
// every backend, at a shape of the serial kernel); and decays of 0 and of 1.
TEST_F(SsdLadder, DecaysOfAllStrengths) {
  Rng rng(86);
  for (const char* name : {"fused", "chunked"}) {
    auto p = SsdScanProblem::random(rng, 64, 4, 64, 64);
    p.softplus = false;
    p.dt_bias.clear();
    p.A_log2e = {-1.442695f * 4, -1.442695f * 256, -1e4f, 0};
    for (float& b : p.B) b *= 0.05f;  // without decay the state is a random walk
    for (int64_t t = 0; t < 64; ++t)
      for (int64_t h = 0; h < 4; ++h) {
        const float strength = h == 0 ? 4.0f : 256.0f;
        p.dt[static_cast<size_t>(t * 4 + h)] =
            t < 24 ? rng.uniform(3, 6) : rng.uniform(0, 0.5f / strength);
      }
    expect_like_ref(rung(name), p, Batch::single(64), p.random_state(rng));
  }
}

// A batch takes strips of other widths than its sequences alone, and its rows lie elsewhere: the
// bits are the same. So are they for cuts at chunk edges, also before a tail of the recurrence.
TEST_F(SsdLadder, BitsAreTheSequencesOwn) {
  Rng rng(87);
  struct Shape {
    int64_t heads, headdim, d_state;
  };
  for (const Shape& s : {Shape{2, 64, 64}, {1, 128, 64}}) {
    Batch batch;
    for (int64_t length : {67, 1, 0, 9, 64})
      batch.add(length, static_cast<int32_t>(batch.state_slot.size()));
    const auto p =
        SsdScanProblem::random(rng, batch.seq_start.back(), s.heads, s.headdim, s.d_state);
    const auto state = p.random_state(rng, 5);
    EXPECT_TRUE(
        same_bits(p.run(*memory_, batch, state, kOdd), run_singly(*memory_, p, batch, state)));
    const auto whole = p.rows(0, 135);
    const std::vector<float> first(state.begin(), state.begin() + p.state_size());
    const RunResult once = whole.run(*memory_, Batch::single(135), first);
    for (const std::vector<int64_t>& cut : {std::vector<int64_t>{64, 64, 7}, {128, 7}, {64, 71}})
      EXPECT_TRUE(same_bits(run_pieces(*memory_, whole, cut, first), once)) << cut[0];
  }
}

TEST_F(SsdLadder, EverySeedGivesTheSameBits) {
  Rng rng(88);
  const auto p = SsdScanProblem::random(rng, 75, 2, 64, 64);
  const auto state = p.random_state(rng);
  for (const char* name : {"fused", "chunked", "step"}) {
    for (const DType activations : {DType::kF32, DType::kBF16}) {
      const auto with_seed = [&](uint64_t seed) {
        emulator::set_schedule({.seed = seed});
        return run(rung(name), p, activations, Batch::single(75), state);
      };
      const RunResult once = with_seed(1);
      for (uint64_t seed = 2; seed <= 4; ++seed)
        EXPECT_TRUE(same_bits(with_seed(seed), once)) << name << " seed " << seed;
    }
  }
  emulator::set_schedule({});
}

// NaN of other sequences, in padding and in slots that nobody has, shows nowhere.
TEST_F(SsdLadder, NanStaysWhereItIs) {
  Rng rng(89);
  Batch batch;
  batch.add(66, 2), batch.add(9, -1), batch.add(20, 0), batch.add(1, 3);
  auto p = SsdScanProblem::random(rng, 96, 2, 64, 64);
  auto state = p.random_state(rng, 5);
  const RunResult clean = p.run(*memory_, batch, state);
  const auto width = static_cast<size_t>(p.out_width()), slot = static_cast<size_t>(p.state_size());
  std::fill_n(p.x.begin() + 66 * width, 29 * width, NAN);  // padding, and slot 0's sequence
  std::fill_n(p.dt.begin() + 66 * 2, 29 * 2, NAN);
  std::fill_n(state.begin() + slot, slot, NAN);
  const RunResult got = p.run(*memory_, batch, state);
  const auto rows = [&](const RunResult& r, size_t begin, size_t count) {
    return std::span(r.out).subspan(begin * width, count * width);
  };
  EXPECT_TRUE(same_bits(rows(got, 0, 66), rows(clean, 0, 66)));
  EXPECT_TRUE(same_bits(rows(got, 95, 1), rows(clean, 95, 1)));
  for (const float v : rows(got, 66, 9)) EXPECT_EQ(v, 0);
  for (const float v : rows(got, 75, 20)) ASSERT_TRUE(std::isnan(v));
  for (size_t s : {2u, 3u})
    EXPECT_TRUE(same_bits(std::span(got.state).subspan(s * slot, slot),
                          std::span(clean.state).subspan(s * slot, slot)));
}

// NaN and infinities in a sequence spoil what the recurrence spoils: its row and what follows. All
// else stays finite, and above all the rows before it in its chunk keep their bits.
TEST_F(SsdLadder, SpoilsNothingBeforeItsRow) {
  Rng rng(90);
  const int64_t tokens = 75, P = 64, N = 64;
  const auto clean = SsdScanProblem::random(rng, tokens, 1, P, N);
  const auto state = clean.random_state(rng);
  for (const SsdRung& r : cuda_emulated::ssd_ladder()) {
    for (DType activations : {DType::kF32, DType::kBF16}) {
      const auto run_it = [&](const SsdScanProblem& p) {
        return run(r, p, activations, Batch::single(tokens), state);
      };
      const RunResult whole = run_it(clean);
      const auto spoil = [&](std::vector<float> SsdScanProblem::*field, int64_t row, int64_t width,
                             float bad) {
        SCOPED_TRACE(fmt::format("{}: row {}, {} wide, {}", r.name, row, width, bad));
        SsdScanProblem p = clean;
        (p.*field)[static_cast<size_t>(row * width + width / 3)] = bad;
        const RunResult got = run_it(p), want = p.run(*ref_, Batch::single(tokens), state);
        const auto pattern = [](const std::vector<float>& values) {
          std::vector<bool> finite;
          for (const float v : values) finite.push_back(std::isfinite(v));
          return finite;
        };
        EXPECT_FALSE(all_finite(want.out));
        EXPECT_EQ(pattern(got.out), pattern(want.out));
        EXPECT_EQ(pattern(got.state), pattern(want.state));
        const auto before = static_cast<size_t>(row * P);
        EXPECT_TRUE(
            same_bits(std::span(got.out).first(before), std::span(whole.out).first(before)));
      };
      spoil(&SsdScanProblem::x, 40, P, NAN);
      if (activations == DType::kBF16) continue;
      spoil(&SsdScanProblem::x, 9, P, INFINITY);
      spoil(&SsdScanProblem::x, 66, P, NAN);
      spoil(&SsdScanProblem::dt, 40, 1, NAN);
      spoil(&SsdScanProblem::B, 40, N, NAN);
      spoil(&SsdScanProblem::C, 40, N, NAN);
    }
  }
}

}  // namespace
}  // namespace adder::testing
