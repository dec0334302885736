// Every kernel of the Mamba-1 scan, in float32 and bfloat16, against the reference; and to the bit
// where it must not matter which one runs.

#include "backends/cuda/scan/scan_ladder.h"

#include <functional>

#include "backends/cuda/scan/scan_lanes.cuh"
#include "backends/cuda/shim/emulator.h"
#include "testing/selective_scan_problem.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

using cuda_emulated::CudaContext;
using cuda_emulated::exp2_fma;
using cuda_emulated::scan_ladder;
using cuda_emulated::scan_silu;
using cuda_emulated::scan_softplus;
using cuda_emulated::ScanRung;

// bfloat16 outputs: one rounding to 8 bits, at most 2^-8 of the value, on top of the scan's own bar
// (inputs are rounded before both sides see them). Its mean square is at most 2^-16.
constexpr Tolerance kScanBf16{kScan.atol, kScan.rtol + 0x1p-8, kScan.nmse + 0x1p-16};

enum class Type { kFloat, kBf16 };

// A float32 tensor of host memory in bfloat16, element for element where it lies, gaps and all.
struct Bf16Copy {
  std::vector<uint16_t> memory;
  Tensor view;

  explicit Bf16Copy(const Tensor& from) : view(from) {
    if (!from) return;
    int64_t last = from.offset;
    for (int axis = 0; axis < from.rank; ++axis)
      last += std::max<int64_t>(from.dim(axis) - 1, 0) * from.stride[static_cast<size_t>(axis)];
    if (from.size() > 0) ++last;
    memory.resize(static_cast<size_t>(last) + 16);
    for (int64_t i = 0; i < last; ++i)
      memory[static_cast<size_t>(i)] = f32_to_bf16(static_cast<const float*>(from.data)[i]);
    // As aligned as the original.
    auto* start = memory.data();
    while (reinterpret_cast<uintptr_t>(start) % 16 != reinterpret_cast<uintptr_t>(from.data) % 16)
      ++start;
    std::copy_backward(memory.begin(), memory.begin() + last, start + last);
    view.data = start;
    view.dtype = DType::kBF16;
  }
  void widen_into(const Tensor& to) const {
    for (int64_t row = 0; row < to.dim(0); ++row)
      for (int64_t i = 0; i < to.dim(1); ++i) {
        const int64_t at = row * to.stride[0] + i;
        to.ptr<float>()[at] = bf16_to_f32(view.ptr<const uint16_t>()[at]);
      }
  }
};

// Runs `scan` on bfloat16 copies of the activations.
void run_as_bf16(const std::function<void(const SelectiveScanArgs&)>& scan,
                 const SelectiveScanArgs& args) {
  const Bf16Copy u(args.u), delta(args.delta), B(args.B), C(args.C), z(args.z), out(args.out);
  SelectiveScanArgs copies = args;
  copies.u = u.view, copies.delta = delta.view, copies.B = B.view, copies.C = C.view;
  copies.z = z.view;
  const bool in_place = args.out.data == args.u.data;
  copies.out = in_place ? u.view : out.view;
  scan(copies);
  (in_place ? u : out).widen_into(args.out);
}

class ScanLadder : public ::testing::Test {
 protected:
  RunResult run(const ScanRung& rung, Type type, const SelectiveScanProblem& p, const Batch& batch,
                const std::vector<float>& state, const Layout& layout = kPacked,
                bool in_place = false) {
    supported_ = true;
    const auto scan = [&](const SelectiveScanArgs& args) {
      supported_ = rung.supports(context_.device, args);
      if (supported_) rung.run(context_, args);
    };
    const auto as_type = [&](const SelectiveScanArgs& args) {
      type == Type::kBf16 ? run_as_bf16(scan, args) : scan(args);
    };
    return p.run_by(as_type, *emulator_, batch, state, layout, in_place);
  }

  static void round_activations(SelectiveScanProblem& p) {
    for (auto* values : {&p.u, &p.delta, &p.B, &p.C, &p.z}) round_to_bf16(*values);
  }

  // Every rung that can, in both types; those of production to the bit of each other. Returns how
  // many ran.
  int expect_like_ref(SelectiveScanProblem p, const Batch& batch, const std::vector<float>& state,
                      const Layout& layout, const std::string& what) {
    int ran = 0;
    for (const Type type : {Type::kFloat, Type::kBf16}) {
      if (type == Type::kBf16) round_activations(p);
      const RunResult want = p.run(*ref_, batch, state);
      const RunResult production = run(scan_ladder().back(), type, p, batch, state, layout);
      for (const ScanRung& rung : scan_ladder()) {
        SCOPED_TRACE(fmt::format("{}: {} {} (L {} D {} N {} G {})", what, rung.name,
                                 type == Type::kBf16 ? "bf16" : "f32", p.tokens, p.d_inner,
                                 p.d_state, p.n_groups));
        const RunResult got = run(rung, type, p, batch, state, layout);
        if (!supported_) continue;
        ++ran;
        EXPECT_TRUE(close(got.out, want.out, type == Type::kBf16 ? kScanBf16 : kScan));
        EXPECT_TRUE(close(got.state, want.state, kScan));
        if (rung.production_bits) {
          EXPECT_TRUE(same_bits(got, production));
        }
      }
    }
    return ran;
  }

  std::unique_ptr<Backend> ref_ = make_backend("ref");
  std::unique_ptr<Backend> emulator_ = cuda_emulated::make_backend(0);
  CudaContext context_{0};
  bool supported_ = true;
};

TEST_F(ScanLadder, ShapesAndLayouts) {
  Rng rng(401);
  struct {
    int64_t tokens, d_inner, d_state, groups;
    Layout layout;
  } const cases[] = {
      {1, 12, 16, 1, kPacked},  {33, 20, 16, 1, kPacked}, {70, 12, 16, 3, kOdd},
      {65, 17, 16, 1, kPacked}, {37, 16, 16, 2, kTight},  {9, 8, 16, 8, kPacked},
      {37, 9, 5, 1, kOdd},      {18, 8, 12, 1, kPacked},  {35, 6, 40, 2, kOdd},
      {6, 3, 100, 1, kPacked},  {3, 2, 257, 1, kPacked},
  };
  uint64_t seed = 1;
  for (const auto& c : cases) {
    emulator::set_schedule({.seed = seed++});
    const auto p = SelectiveScanProblem::random(rng, c.tokens, c.d_inner, c.d_state, c.groups);
    expect_like_ref(p, Batch::single(c.tokens), p.random_state(rng), c.layout, "shape");
  }
}

// Wider than the tile of one lane per channel. The rungs with a block per channel see nothing new.
TEST_F(ScanLadder, SeveralBlocksOfChannels) {
  Rng rng(402);
  emulator::set_schedule({.seed = 77});
  const auto p = SelectiveScanProblem::random(rng, 19, 136, 16);
  const auto state = p.random_state(rng);
  const Batch batch = Batch::single(19);
  const RunResult production = run(scan_ladder().back(), Type::kFloat, p, batch, state);
  EXPECT_TRUE(close(production, p.run(*ref_, batch, state), kScan));
  for (const ScanRung& rung : scan_ladder())
    if (rung.production_bits) {
      EXPECT_TRUE(same_bits(run(rung, Type::kFloat, p, batch, state), production)) << rung.name;
    }
}

TEST_F(ScanLadder, EveryRungTakesTheShapesOfCheckpoints) {
  Rng rng(410);
  const auto p = SelectiveScanProblem::random(rng, 10, 8, 16);
  EXPECT_EQ(expect_like_ref(p, Batch::single(10), p.random_state(rng), kPacked, "small"),
            2 * static_cast<int>(scan_ladder().size()));
}

TEST_F(ScanLadder, OptionalOperands) {
  Rng rng(403);
  for (int mask = 1; mask < 16; mask += 2) {
    auto p = SelectiveScanProblem::random(rng, 11, 4, 16);
    if ((mask & 2) != 0) p.D.clear();
    if ((mask & 1) != 0) p.z.clear();
    if ((mask & 4) != 0) p.delta_bias.clear();
    if ((mask & 8) != 0) {
      p.softplus = false;
      p.delta = rng.uniforms(p.tokens * p.d_inner, 1, 2);
    }
    expect_like_ref(p, Batch::single(11), p.random_state(rng), kPacked,
                    fmt::format("operands {:04b}", mask));
  }
}

// Empty sequences, padding, single tokens and long ones side by side, slots in reverse.
TEST_F(ScanLadder, PackedBatches) {
  Rng rng(404);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    emulator::set_schedule({.seed = seed, .resident_blocks = 6});
    Batch batch;
    for (int64_t length : {3, 0, -6, 41, 1, 32, -1}) {
      const auto slot = static_cast<int32_t>(6 - batch.state_slot.size());
      batch.add(std::abs(length), length < 0 ? -1 : slot);
    }
    const auto p = SelectiveScanProblem::random(rng, batch.seq_start.back(), 4, 16);
    expect_like_ref(p, batch, p.random_state(rng, 8), kPacked, fmt::format("seed {}", seed));
  }
}

// Several chunks of the scans along time, whose blocks wait for each other in any order.
TEST_F(ScanLadder, LongSequences) {
  Rng rng(405);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    emulator::set_schedule({.seed = seed, .resident_blocks = 5});
    Batch batch;
    batch.add(2100, 1);
    batch.add(7, 2);
    batch.add(1025, 0);
    batch.add(1100, -1);
    auto p = SelectiveScanProblem::random(rng, batch.seq_start.back(), 1, 3);
    // Slow decays, so that chunks matter to each other.
    for (float& a : p.A_log2e) a *= 0.002f;
    for (float& b : p.B) b *= 0.1f;
    expect_like_ref(p, batch, p.random_state(rng, 3), kPacked, fmt::format("seed {}", seed));
  }
}

// What passes between the threads of a block, many orders of them: one state, so that nothing lies
// between two chunks, and many.
TEST_F(ScanLadder, ScansAlongTimeInAnyOrder) {
  Rng rng(412);
  for (const auto& [tokens, d_state] : {std::pair{2060, 1}, {40, 24}}) {
    auto p = SelectiveScanProblem::random(rng, tokens, 1, d_state);
    for (float& a : p.A_log2e) a *= 0.002f;
    for (float& b : p.B) b *= 0.1f;
    const auto state = p.random_state(rng);
    const Batch batch = Batch::single(tokens);
    const RunResult want = p.run(*ref_, batch, state);
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      emulator::set_schedule({.seed = seed});
      for (const ScanRung& rung : scan_ladder())
        if (rung.name == "blelloch" || rung.name == "fused" || rung.name == "three-level") {
          EXPECT_TRUE(close(run(rung, Type::kFloat, p, batch, state), want, kScan))
              << rung.name << " " << d_state << " states, seed " << seed;
        }
    }
  }
}

// A sequence cut anywhere has the bits of the whole, whichever kernel each piece runs on.
TEST_F(ScanLadder, PiecesGiveTheBitsOfTheWhole) {
  Rng rng(406);
  for (const int64_t d_state : {16, 7, 12, 24}) {
    const auto p = SelectiveScanProblem::random(rng, 110, 8, d_state);
    const auto state = p.random_state(rng);
    const RunResult whole = p.run(*emulator_, Batch::single(110), state);
    for (const auto& cut : std::vector<std::vector<int64_t>>{
             {1, 8, 9, 31, 61}, {33, 1, 1, 1, 64, 10}, {7, 16, 17, 70}})
      EXPECT_TRUE(same_bits(run_pieces(*emulator_, p, cut, state), whole))
          << d_state << " states, cut " << cut[0] << ", " << cut[1];
  }
}

// Lanes that trade exponentials with each other get what each would have computed.
TEST_F(ScanLadder, ExponentialsOnTheFmaUnitsDoNotDependOnLanes) {
  Rng rng(411);
  const auto rung = [](std::string_view name) {
    for (const ScanRung& r : scan_ladder())
      if (r.name == name) return r;
    throw std::invalid_argument(std::string(name));
  };
  for (const int64_t tokens : {1, 8, 43}) {
    const auto p = SelectiveScanProblem::random(rng, tokens, 10, 16);
    const auto state = p.random_state(rng);
    const Batch batch = Batch::single(tokens);
    const RunResult four = run(rung("flash-4-fma"), Type::kFloat, p, batch, state);
    EXPECT_TRUE(same_bits(run(rung("flash-8-fma"), Type::kFloat, p, batch, state), four));
    EXPECT_EQ(bool{same_bits(run(rung("flash-4"), Type::kFloat, p, batch, state), four)},
              cuda_emulated::kFmaInProduction);
  }
}

TEST_F(ScanLadder, OutMayBeU) {
  Rng rng(407);
  auto p = SelectiveScanProblem::random(rng, 67, 16, 16);
  round_activations(p);
  const auto state = p.random_state(rng);
  for (const ScanRung& rung : scan_ladder())
    for (const Type type : {Type::kFloat, Type::kBf16}) {
      if (rung.name == "three-level") continue;  // its rounding depends on timing
      const Batch batch = Batch::single(67);
      EXPECT_TRUE(same_bits(run(rung, type, p, batch, state, kPacked, /*in_place=*/true),
                            run(rung, type, p, batch, state)))
          << rung.name;
    }
}

// The channels of a block share tiles, and those of a warp exchange values.
TEST_F(ScanLadder, NanReachesItsOwnChannelOnly) {
  Rng rng(408);
  auto p = SelectiveScanProblem::random(rng, 40, 8, 16);
  const auto state = p.random_state(rng);
  const auto clean = p;
  p.u[21 * 8 + 3] = NAN;
  p.delta[25 * 8 + 6] = NAN;
  for (const ScanRung& rung : scan_ladder()) {
    if (rung.name == "three-level") continue;  // its rounding depends on timing
    const RunResult want = run(rung, Type::kFloat, clean, Batch::single(40), state);
    const RunResult got = run(rung, Type::kFloat, p, Batch::single(40), state);
    for (int64_t t = 0; t < 40; ++t)
      for (int64_t d = 0; d < 8; ++d) {
        const auto i = static_cast<size_t>(t * 8 + d);
        if ((d == 3 && t >= 21) || (d == 6 && t >= 25))
          EXPECT_TRUE(std::isnan(got.out[i])) << rung.name << " " << t << ", " << d;
        else
          EXPECT_EQ(got.out[i], want.out[i]) << rung.name << " " << t << ", " << d;
      }
  }
}

TEST_F(ScanLadder, RefusesWhatItHasNoKernelFor) {
  Rng rng(409);
  const auto p = SelectiveScanProblem::random(rng, 2, 3, 17);
  for (const ScanRung& rung : scan_ladder()) {
    run(rung, Type::kFloat, p, Batch::single(2), p.random_state(rng));
    if (supported_) continue;
    const auto anyway = [&](const SelectiveScanArgs& args) { rung.run(context_, args); };
    EXPECT_THROW(p.run_by(anyway, *emulator_, Batch::single(2), p.random_state(rng)), Error)
        << rung.name;
  }
}

// The polynomial against float64, over the whole range and densely towards 0, where decays live.
TEST(Exp2Fma, HoldsItsBound) {
  double worst = 0;
  const auto one = [&](float x) {
    const double want = std::exp2(double{x});
    worst = std::max(worst, std::abs(exp2_fma(x) - want) / want);
  };
  for (int64_t i = -126 * 4096; i < 127 * 4096; ++i) one(static_cast<float>(i) / 4096);
  for (uint32_t bits = 0x33000000u; bits < 0x42fc0000u; bits += 1021)  // to -126
    one(-std::bit_cast<float>(bits));
  EXPECT_LE(worst, 2e-7);
  EXPECT_GE(worst, 5e-8) << "too good: is this the polynomial?";
}

TEST(Exp2Fma, Ends) {
  EXPECT_EQ(exp2_fma(0.0f), 1.0f);
  EXPECT_EQ(exp2_fma(-0.0f), 1.0f);
  for (float x = -127; x <= -126; x += 0x1p-12f) {
    EXPECT_GE(exp2_fma(x), 0.0f) << x;
    EXPECT_LE(exp2_fma(x), 0x1p-126f) << x;
  }
  for (float x : {-127.0f, -1e4f, -1e30f, -INFINITY}) EXPECT_EQ(exp2_fma(x), 0.0f) << x;
  for (float x : {128.0f, 1e4f, INFINITY}) EXPECT_EQ(exp2_fma(x), INFINITY) << x;
}

// Against float64. Beyond the polynomial's 1.4e-7 the argument of exp2 is rounded, at most 2^-24 of
// it: a relative error of 2^-24 * |v| of the exponential.
TEST(ScanSoftplus, HoldsItsBound) {
  for (float v = -86; v < 60; v += 0x1p-8f) {
    const double want = std::log1p(std::exp(double{v}));
    const double bound = 2e-7 + 0x1p-24 * 1.3 * std::abs(v);
    ASSERT_NEAR(scan_softplus(v), want, bound * want) << v;
  }
  for (float v : {20.0f, 20.5f, 1e4f, 3e38f, INFINITY}) EXPECT_EQ(scan_softplus(v), v);
  for (float v : {-200.0f, -1e30f, -INFINITY}) EXPECT_EQ(scan_softplus(v), 0.0f) << v;
  EXPECT_TRUE(std::isnan(scan_softplus(NAN)));
}

TEST(ScanSilu, HoldsItsBound) {
  for (float v = -87; v < 90; v += 0x1p-8f) {
    const double want = v / (1 + std::exp(-double{v}));
    const double bound = 3e-7 + 0x1p-24 * 1.3 * std::abs(std::min(v, 0.0f));
    ASSERT_NEAR(scan_silu(v), want, bound * std::abs(want)) << v;
  }
  for (float v : {100.0f, 1e30f}) EXPECT_EQ(scan_silu(v), v);
  for (float v : {-130.0f, -1e30f}) EXPECT_EQ(scan_silu(v), 0.0f) << v;
  EXPECT_TRUE(std::isnan(scan_silu(NAN)));
}

}  // namespace
}  // namespace adder::testing
