// The fused step of Mamba-2 against the three operations that it stands for: the same bits on the
// same backend, and within the bar of a scan of the reference.
#include "kernels/conv_ssd_norm.h"

#include <numeric>

#include "backends/cuda/shim/emulator.h"
#include "testing/recurrence.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

enum class Norm { kNone, kAfterGate, kBeforeGate };

// One row per sequence, as the mixer has it: z, x, B, C and dt are columns of one matrix.
struct StepProblem {
  int64_t n_heads = 4, headdim = 64, d_state = 128, n_groups = 1, d_conv = 4;
  Norm norm = Norm::kAfterGate;
  bool bias = true, D_per_element = false, silu = true, in_place = true;
  float dt_max = std::numeric_limits<float>::infinity();
  std::vector<float> columns, conv_weight, conv_bias, A_log2e, D, dt_bias, norm_weight;

  int64_t width() const { return n_heads * headdim; }
  int64_t channels() const { return width() + 2 * n_groups * d_state; }
  int64_t row() const { return width() + channels() + n_heads; }
  int64_t conv_size() const { return (d_conv - 1) * channels(); }
  int64_t ssm_size() const { return width() * d_state; }

  void fill(Rng& rng, int64_t rows) {
    columns = rng.normals(rows * row());
    conv_weight = rng.normals(d_conv * channels(), 0.5f);
    conv_bias = bias ? rng.normals(channels()) : std::vector<float>();
    A_log2e = rng.uniforms(n_heads, -23, -1.5f);
    D = rng.normals(D_per_element ? width() : n_heads);
    dt_bias = rng.uniforms(n_heads, -3, 0);
    norm_weight = rng.normals(width());
  }
};

struct StepState {
  std::vector<float> conv, ssm;
};
struct StepResult {
  std::vector<float> out;
  StepState state;
};

template <typename F>
StepResult run_step(Backend& backend, const StepProblem& p, const Batch& batch,
                    const StepState& state, const Layout& layout, F&& step) {
  const int64_t rows = batch.seq_start.back(), e = p.width(), channels = p.channels();
  const int64_t g = p.n_groups, s = p.d_state, h = p.n_heads;
  const auto slots = static_cast<int64_t>(state.ssm.size()) / p.ssm_size();
  const auto tensor = [&](const std::vector<int64_t>& dims, const std::vector<float>& values) {
    return values.empty() ? OpTensor() : OpTensor(backend, dims, layout, values);
  };
  OpTensor columns(backend, {rows, p.row()}, layout, p.columns);
  OpTensor weight = tensor({p.d_conv, channels}, p.conv_weight);
  OpTensor bias = tensor({channels}, p.conv_bias), A = tensor({h}, p.A_log2e);
  OpTensor D = p.D_per_element ? tensor({h, p.headdim}, p.D) : tensor({h}, p.D);
  OpTensor dt_bias = tensor({h}, p.dt_bias), norm_weight = tensor({e}, p.norm_weight);
  OpTensor conv_state = tensor({slots, p.d_conv - 1, channels}, state.conv);
  OpTensor ssm_state = tensor({slots, h, p.headdim, s}, state.ssm);
  OpTensor xbc(backend, {rows, channels}, layout, {}), y(backend, {rows, e}, layout, {});
  OpTensor other(backend, {rows, e}, layout, {});
  const Tensor z = columns.view().slice(1, 0, e), conv = xbc.view();
  ConvSsdNormArgs a{
      {columns.view().slice(1, e, channels), weight.view(), bias.view(), conv_state.view(), p.silu,
       conv, batch.packed()},
      {conv.slice(1, 0, e).split_last(h, p.headdim), columns.view().slice(1, e + channels, h),
       A.view(), conv.slice(1, e, g * s).split_last(g, s),
       conv.slice(1, e + g * s, g * s).split_last(g, s), D.view(),
       p.norm == Norm::kNone ? z.split_last(h, p.headdim) : Tensor(), dt_bias.view(), true, 0.0f,
       p.dt_max, ssm_state.view(), y.view().split_last(h, p.headdim), batch.packed()},
      {}};
  OpTensor& out = p.norm == Norm::kNone || p.in_place ? y : other;
  if (p.norm != Norm::kNone)
    a.norm = GatedRmsNormArgs{
        y.view(), z, norm_weight.view(), 1e-5f, g, p.norm == Norm::kBeforeGate, out.view()};
  step(a);
  return {out.read(), {conv_state.read(), ssm_state.read()}};
}

// Rows that are there, an empty sequence, a row of padding.
Batch mixed_rows() {
  Batch batch;
  batch.add(1, 2);
  batch.add(0, 3);
  batch.add(1, -1);
  batch.add(1, 0);
  batch.add(1, 4);
  return batch;
}

class ConvSsdNorm : public BackendTest {
 protected:
  uint64_t launches_ = 0;

  StepResult fused(const StepProblem& p, const Batch& batch, const StepState& state,
                   const Layout& layout = kPacked) {
    return run_step(*backend_, p, batch, state, layout, [&](const ConvSsdNormArgs& a) {
      const uint64_t before = emulator::launch_count().grids;
      backend_->conv_ssd_norm(a);
      launches_ = emulator::launch_count().grids - before;
    });
  }
  static StepResult apart(Backend& backend, const StepProblem& p, const Batch& batch,
                          const StepState& state) {
    return run_step(backend, p, batch, state, kPacked,
                    [&](const ConvSsdNormArgs& a) { backend.Backend::conv_ssd_norm(a); });
  }
  void expect_one_launch() const {
    EXPECT_EQ(launches_, GetParam().backend == "emulator" ? 1u : 0u);
  }
  void expect_same(const StepProblem& p, const Batch& batch, const StepState& state) {
    const StepResult want = apart(*backend_, p, batch, state), ref = apart(*ref_, p, batch, state);
    for (const Layout& layout : kLayouts) {
      const StepResult got = fused(p, batch, state, layout);
      expect_one_launch();
      EXPECT_TRUE(same_bits(got.out, want.out));
      EXPECT_TRUE(same_bits(got.state.conv, want.state.conv));
      EXPECT_TRUE(same_bits(got.state.ssm, want.state.ssm));
      EXPECT_TRUE(close(got.out, ref.out, kScan));
      EXPECT_TRUE(same_bits(got.state.conv, ref.state.conv)) << "copies";
      EXPECT_TRUE(close(got.state.ssm, ref.state.ssm, kScan));
    }
  }
  static StepState random_state(Rng& rng, const StepProblem& p, int64_t slots) {
    return {rng.normals(slots * p.conv_size()), rng.normals(slots * p.ssm_size())};
  }
};
ADDER_TEST_ALL_TARGETS(ConvSsdNorm);

TEST_P(ConvSsdNorm, ShapesGroupsAndNorms) {
  Rng rng(610);
  std::vector<StepProblem> problems(9);
  problems[1].norm = Norm::kBeforeGate, problems[1].n_groups = 2;
  problems[2].norm = Norm::kNone, problems[2].bias = false;
  problems[3].n_groups = 4, problems[3].d_state = 64, problems[3].in_place = false;
  problems[4].n_heads = 3, problems[4].n_groups = 3, problems[4].d_conv = 2;
  problems[5].headdim = 128, problems[5].D_per_element = true, problems[5].d_conv = 3;
  problems[6].n_heads = 6, problems[6].n_groups = 2, problems[6].silu = false;
  problems[7].d_conv = 7, problems[7].dt_max = 0.03f, problems[7].norm = Norm::kBeforeGate;
  problems[8].n_heads = 1, problems[8].d_state = 64, problems[8].headdim = 192;
  const Batch batch = mixed_rows();
  for (size_t i = 0; i < problems.size(); ++i) {
    SCOPED_TRACE(i);
    StepProblem& p = problems[i];
    p.fill(rng, batch.seq_start.back());
    expect_same(p, batch, random_state(rng, p, 5));
  }
}

// Whichever block comes last.
TEST_P(ConvSsdNorm, OrderOfBlocksDoesNotMatter) {
  Rng rng(611);
  StepProblem p;
  p.n_groups = 2;
  const Batch batch = mixed_rows();
  p.fill(rng, batch.seq_start.back());
  const StepState state = random_state(rng, p, 5);
  const StepResult want = apart(*backend_, p, batch, state);
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    emulator::set_schedule({.seed = seed, .resident_blocks = static_cast<int>(1 + seed % 8)});
    const StepResult got = fused(p, batch, state);
    EXPECT_TRUE(same_bits(got.out, want.out)) << "seed " << seed;
    EXPECT_TRUE(same_bits(got.state.conv, want.state.conv)) << "seed " << seed;
    EXPECT_TRUE(same_bits(got.state.ssm, want.state.ssm)) << "seed " << seed;
  }
  emulator::set_schedule({});
}

// NaN in a slot that nobody has, in a row of padding and in another sequence shows nowhere else.
TEST_P(ConvSsdNorm, KeepsNaNWhereItIs) {
  Rng rng(612);
  StepProblem p;
  const Batch batch = mixed_rows();
  p.fill(rng, batch.seq_start.back());
  StepState state = random_state(rng, p, 5);
  const StepResult clean = fused(p, batch, state);
  const auto fill = [](std::vector<float>& v, int64_t begin, int64_t count) {
    std::fill_n(v.begin() + begin, count, NAN);
  };
  fill(state.ssm, p.ssm_size(), p.ssm_size());                    // slot 1: free
  fill(state.conv, 3 * p.conv_size(), p.conv_size());             // slot 3: no rows
  fill(p.columns, 1 * p.row() + p.width(), p.row() - p.width());  // padding, but for its gate
  fill(p.columns, 2 * p.row(), p.row());                          // the sequence of slot 0
  const StepResult dirty = fused(p, batch, state);
  for (int64_t row = 0; row < 4; ++row) {
    const auto got = cut_rows(dirty.out, 4, row, 1);
    if (row == 2)
      EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](float v) { return std::isnan(v); }));
    else
      EXPECT_TRUE(same_bits(got, cut_rows(clean.out, 4, row, 1))) << row;
  }
  for (int64_t slot : {2, 4}) {
    EXPECT_TRUE(
        same_bits(cut_rows(dirty.state.conv, 5, slot, 1), cut_rows(clean.state.conv, 5, slot, 1)));
    EXPECT_TRUE(
        same_bits(cut_rows(dirty.state.ssm, 5, slot, 1), cut_rows(clean.state.ssm, 5, slot, 1)));
  }
}

// Recorded once and run three times, as decoding does.
TEST_P(ConvSsdNorm, RunsInARecordedStep) {
  Rng rng(615);
  StepProblem p;
  Batch batch;
  batch.add(1, 3);
  batch.add(1, 1);
  p.fill(rng, 2);
  const StepState state = random_state(rng, p, 5);
  StepResult want{{}, state};
  for (int step = 0; step < 3; ++step) want = apart(*backend_, p, batch, want.state);
  const StepResult got =
      run_step(*backend_, p, batch, state, kPacked, [&](const ConvSsdNormArgs& a) {
        const auto loop = backend_->make_decode_loop(
            2, p.width(), [&](std::span<const int32_t>, const PackedBatch& recorded) {
              ConvSsdNormArgs step = a;
              step.conv.batch = step.scan.batch = recorded;
              backend_->conv_ssd_norm(step);
              return step.norm->out;
            });
        std::vector<DecodeRow> rows(2);
        for (DecodeRow& row : rows) row.max_tokens = 3, row.sampling.temperature = 0;
        rows[0].slot = 3, rows[1].slot = 1;
        loop->start(rows);
        for (int step = 0; step < 3; ++step) loop->step();
        for (int step = 0; step < 3; ++step) loop->read();
      });
  EXPECT_TRUE(same_bits(got.out, want.out));
  EXPECT_TRUE(same_bits(got.state.conv, want.state.conv));
  EXPECT_TRUE(same_bits(got.state.ssm, want.state.ssm));
}

// What the fused step does not take goes through the three operations.
TEST_P(ConvSsdNorm, OtherShapesAndLengths) {
  Rng rng(613);
  StepProblem small;
  small.headdim = 12, small.d_state = 9, small.n_groups = 2;
  small.fill(rng, 4);
  StepProblem usual;
  usual.fill(rng, 6);
  Batch longer;
  longer.add(1, 1);
  longer.add(5, 0);
  const auto compare = [&](const StepProblem& p, const Batch& batch) {
    const StepState state = random_state(rng, p, 5);
    const StepResult got = fused(p, batch, state), want = apart(*backend_, p, batch, state),
                     ref = apart(*ref_, p, batch, state);
    EXPECT_TRUE(same_bits(got.out, want.out));
    EXPECT_TRUE(same_bits(got.state.ssm, want.state.ssm));
    EXPECT_TRUE(close(got.out, ref.out, kScan));
  };
  compare(small, mixed_rows());
  compare(usual, longer);
}

TEST_P(ConvSsdNorm, RefusesWhatTheOperationsRefuse) {
  Rng rng(614);
  StepProblem p;
  const Batch batch = Batch::single(1);
  p.fill(rng, 1);
  const StepState state = random_state(rng, p, 1);
  const auto refused = [&](const std::function<void(ConvSsdNormArgs&)>& spoil) {
    EXPECT_THROW(run_step(*backend_, p, batch, state, kPacked,
                          [&](ConvSsdNormArgs a) {
                            spoil(a);
                            backend_->conv_ssd_norm(a);
                          }),
                 Error);
  };
  refused([](ConvSsdNormArgs& a) { a.conv.weight = Tensor(); });
  refused([](ConvSsdNormArgs& a) { a.scan.A_log2e = a.scan.A_log2e.slice(0, 0, 3); });
  refused([](ConvSsdNormArgs& a) { a.scan.dt_max = NAN; });
  refused([](ConvSsdNormArgs& a) { a.norm->weight = a.norm->weight.slice(0, 0, 8); });
  refused([](ConvSsdNormArgs& a) { a.norm->eps = -1; });
}

}  // namespace
}  // namespace adder::testing
