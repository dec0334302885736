// rms_norm and gated_rms_norm of every backend and instruction set against the reference, and the
// reference against long double.

#include "testing/dense.h"
#include "testing/recurrence.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

long double sigmoid(long double v) {
  return 0.5L + 0.5L * std::tanh(v / 2);
}

// Two passes and no shared expression with the reference.
std::vector<double> gated_definition(const GatedNorm& g, int64_t groups) {
  std::vector<double> out(g.x.size());
  const int64_t rows = static_cast<int64_t>(g.x.size()) / g.dim, width = g.dim / groups;
  for (int64_t begin = 0; begin < rows * g.dim; begin += width) {
    long double mean = 0;
    for (int64_t j = begin; j < begin + width; ++j) {
      long double v = g.x[j];
      if (!g.norm_before_gate) v *= g.z[j] * sigmoid(g.z[j]);
      mean += v * v / width;
    }
    for (int64_t j = begin; j < begin + width; ++j)
      out[j] = static_cast<double>(static_cast<long double>(g.weight[j % g.dim]) * g.x[j] * g.z[j] *
                                   sigmoid(g.z[j]) / std::sqrt(mean + g.eps));
  }
  return out;
}

GatedNorm random_gated(Rng& rng, int64_t rows, int64_t dim, int64_t groups, bool before) {
  GatedNorm g{dim, groups, before};
  g.x = rng.normals(rows * dim);
  g.z = rng.normals(rows * dim, 2);
  g.weight = rng.normals(dim);
  return g;
}

TEST(RefRmsNorm, AgreesWithLongDouble) {
  Rng rng(70);
  const auto ref = make_backend("ref");
  const auto x = rng.normals(3 * 50), residual = rng.normals(3 * 50), weight = rng.normals(50);
  const NormResult got = run_rms_norm(*ref, x, residual, weight, 50, 1e-2f);
  std::vector<double> want;
  for (int64_t t = 0; t < 3; ++t) {
    long double mean = 0;
    for (int64_t j = 0; j < 50; ++j) {
      const float v = x[t * 50 + j] + residual[t * 50 + j];
      EXPECT_EQ(got.residual[t * 50 + j], v);
      mean += static_cast<long double>(v) * v / 50;
    }
    for (int64_t j = 0; j < 50; ++j)
      want.push_back(static_cast<double>(static_cast<long double>(weight[j]) *
                                         got.residual[t * 50 + j] / std::sqrt(mean + 1e-2f)));
  }
  EXPECT_TRUE(close(got.out, want, kRoundedOnce));
  for (bool before : {false, true}) {
    const GatedNorm g = random_gated(rng, 3, 48, 4, before);
    EXPECT_TRUE(close(g.run(*ref), gated_definition(g, 4), kRoundedOnce)) << before;
  }
}

class RmsNorm : public BackendTest {};
ADDER_TEST_ALL_TARGETS(RmsNorm);

TEST_P(RmsNorm, OddShapesAndLayouts) {
  Rng rng(71);
  std::vector<int64_t> dims;
  for (int64_t dim = 1; dim <= 33; ++dim) dims.push_back(dim);
  for (int64_t dim : {63, 64, 65, 100, 129, 768, 2560}) dims.push_back(dim);
  for (int64_t dim : dims) {
    for (const Layout& layout : kLayouts) {
      const int64_t rows = dim % 5;
      const auto x = rng.normals(rows * dim), residual = rng.normals(rows * dim);
      const auto weight = dim % 3 == 0 ? std::vector<float>{} : rng.normals(dim);
      for (bool with_residual : {false, true}) {
        const auto r = with_residual ? residual : std::vector<float>{};
        const NormResult got = run_rms_norm(*backend_, x, r, weight, dim, 1e-5f, layout);
        const NormResult want = run_rms_norm(*ref_, x, r, weight, dim, 1e-5f);
        EXPECT_TRUE(close(got.out, want.out, kDot)) << "dim " << dim;
        EXPECT_TRUE(same_bits(got.residual, want.residual)) << "one float32 addition, dim " << dim;
        const NormResult again = run_rms_norm(*backend_, x, r, weight, dim, 1e-5f, layout, true);
        EXPECT_TRUE(same_bits(again.out, got.out)) << "in place, dim " << dim;
      }
    }
  }
}

TEST_P(RmsNorm, SmallAndLargeRows) {
  Rng rng(72);
  for (float scale : {0.0f, 1e-20f, 1e-6f, 1e4f, 1e15f}) {
    for (float eps : {1e-5f, 1e-6f, 0.5f}) {
      const auto x = rng.normals(2 * 70, scale), weight = rng.normals(70);
      EXPECT_TRUE(close(run_rms_norm(*backend_, x, {}, weight, 70, eps).out,
                        run_rms_norm(*ref_, x, {}, weight, 70, eps).out, kDot))
          << "scale " << scale << ", eps " << eps;
    }
  }
}

TEST_P(RmsNorm, ARowDependsOnNothingElse) {
  Rng rng(73);
  const auto one = GetParam().make(1), three = GetParam().make(3);
  for (int64_t dim : {1, 9, 64, 771}) {
    auto x = rng.normals(20 * dim);
    const auto residual = rng.normals(20 * dim), weight = rng.normals(dim);
    const NormResult all = run_rms_norm(*backend_, x, residual, weight, dim, 1e-5f);
    EXPECT_TRUE(same_bits(run_rms_norm(*one, x, residual, weight, dim, 1e-5f).out, all.out));
    EXPECT_TRUE(
        same_bits(run_rms_norm(*three, x, residual, weight, dim, 1e-5f, kOdd).out, all.out));
    for (int64_t t : {0, 7, 19})
      EXPECT_TRUE(same_bits(run_rms_norm(*backend_, cut_rows(x, 20, t, 1),
                                         cut_rows(residual, 20, t, 1), weight, dim, 1e-5f)
                                .out,
                            cut_rows(all.out, 20, t, 1)));
    x[7 * dim] = NAN;
    const auto dirty = run_rms_norm(*backend_, x, residual, weight, dim, 1e-5f).out;
    for (int64_t t = 0; t < 20; ++t) {
      if (t == 7) {
        for (int64_t j = 0; j < dim; ++j) EXPECT_TRUE(std::isnan(dirty[7 * dim + j]));
      } else {
        EXPECT_TRUE(same_bits(cut_rows(dirty, 20, t, 1), cut_rows(all.out, 20, t, 1)));
      }
    }
  }
}

class GatedRmsNorm : public BackendTest {};
ADDER_TEST_ALL_TARGETS(GatedRmsNorm);

TEST_P(GatedRmsNorm, OddShapesGroupsAndLayouts) {
  Rng rng(74);
  for (bool before : {false, true}) {
    for (int64_t groups : {1, 2, 3, 8}) {
      for (int64_t width : {1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 64, 100, 192}) {
        const GatedNorm g = random_gated(rng, width % 4, width * groups, groups, before);
        const auto want = g.run(*ref_);
        for (const Layout& layout : kLayouts) {
          const auto got = g.run(*backend_, layout);
          EXPECT_TRUE(close(got, want, kDot)) << groups << " groups of " << width;
          EXPECT_TRUE(same_bits(g.run(*backend_, layout, /*in_place=*/true), got));
        }
      }
    }
  }
}

// A norm over the full width, or one on the wrong side of the gate, is not
// nearly right (osaurus-ai/vmlx-swift#188 shipped a cosine of 0.939) and must be seen as wrong.
TEST_P(GatedRmsNorm, GroupsAndOrderMatter) {
  Rng rng(75);
  GatedNorm g = random_gated(rng, 4, 64, 4, false);
  for (size_t i = 0; i < g.x.size(); ++i) g.x[i] *= 1 + static_cast<float>(i % 64 / 16);
  for (bool before : {false, true}) {
    g.norm_before_gate = before;
    const auto got = g.run(*backend_);
    EXPECT_TRUE(close(got, gated_definition(g, 4), kDot));
    EXPECT_FALSE(close(got, gated_definition(g, 1), kDot));
    EXPECT_FALSE(close(got, gated_definition(g, 2), kDot));
    GatedNorm other = g;
    other.norm_before_gate = !before;
    EXPECT_FALSE(close(got, gated_definition(other, 4), kDot));
  }
}

TEST_P(GatedRmsNorm, GateFarOut) {
  GatedNorm g{9, 1, false};
  g.x.assign(9, 1), g.weight.assign(9, 1);
  g.z = {-1e15f, -1e4f, -100, -88.8f, -20, 0, 20, 100, 1e3f};
  for (bool before : {false, true}) {
    g.norm_before_gate = before;
    EXPECT_TRUE(close(g.run(*backend_), g.run(*ref_), kDot)) << before;
  }
}

TEST_P(GatedRmsNorm, ARowDependsOnNothingElse) {
  Rng rng(76);
  const auto one = GetParam().make(1), three = GetParam().make(3);
  for (bool before : {false, true}) {
    const GatedNorm g = random_gated(rng, 20, 3 * 67, 3, before);
    const auto all = g.run(*backend_);
    EXPECT_TRUE(same_bits(g.run(*one), all));
    EXPECT_TRUE(same_bits(g.run(*three, kOdd), all));
    GatedNorm row = g;
    row.x = cut_rows(g.x, 20, 11, 1);
    row.z = cut_rows(g.z, 20, 11, 1);
    EXPECT_TRUE(same_bits(row.run(*backend_), cut_rows(all, 20, 11, 1)));
  }
}

}  // namespace
}  // namespace adder::testing
