// Offsets are 64-bit. All operands share two "rows" that lie 2^31 + 4096
// elements apart in a sparse mapping, so an offset of 32 bits lands outside it or in the wrong
// place.

#include <sys/mman.h>

#include "testing/causal_conv1d_problem.h"
#include "testing/dense.h"
#include "testing/selective_scan_problem.h"
#include "testing/ssd_scan_problem.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

constexpr int64_t kStride = (int64_t{1} << 31) + 4096;
constexpr int64_t kRowFloats = 4096;  // of each row are used

class Offsets : public BackendTest {
 protected:
  void SetUp() override {
    if (GetParam().backend != "ref" && GetParam().backend != "cpu")
      GTEST_SKIP() << "needs a backend that works in host memory";
    memory_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED) << "8 GiB of address space";
  }
  void TearDown() override {
    if (memory_ != nullptr) ::munmap(memory_, kBytes);
  }

  // A tensor with two entries on its first axis, kStride apart, in columns of its own.
  Tensor two(std::initializer_list<int64_t> inner, DType dtype = DType::kF32) {
    Tensor t(memory_, dtype, inner);
    const int64_t size = t.size();
    for (size_t axis = 3; axis > 0; --axis) {
      t.shape[axis] = t.shape[axis - 1];
      t.stride[axis] = t.stride[axis - 1];
    }
    t.shape[0] = 2;
    t.stride[0] = kStride;
    t.rank += 1;
    t.offset = next_;
    next_ += size;
    EXPECT_LE(next_, kRowFloats);
    return t;
  }
  Tensor two(std::initializer_list<int64_t> inner, const std::vector<float>& values) {
    const Tensor t = two(inner);
    const int64_t size = t.size() / 2;
    for (int64_t i = 0; i < 2; ++i)
      std::copy_n(values.begin() + i * size, size, t.ptr<float>() + i * kStride);
    return t;
  }
  static std::vector<float> values(const Tensor& t) {
    std::vector<float> v;
    for (int64_t i = 0; i < 2; ++i) {
      const float* row = t.ptr<float>() + i * kStride;
      v.insert(v.end(), row, row + t.size() / 2);
    }
    return v;
  }
  Tensor dense(std::initializer_list<int64_t> dims, std::vector<float>& v) {
    return Tensor(v.data(), DType::kF32, dims);
  }

  static constexpr size_t kBytes = (kStride + kRowFloats) * sizeof(float);
  void* memory_ = nullptr;
  int64_t next_ = 0;
};
ADDER_TEST_ALL_TARGETS(Offsets);

TEST_P(Offsets, Matmul) {
  Rng rng(100);
  const auto x = rng.normals(2 * 37);
  const Weight w = Weight::random(rng, DType::kF32, 2, 37, 0.2f);
  MatmulArgs args;
  args.x = two({37}, x);
  Buffer owner, half_owner;
  args.weight = backend_->import_weight(two({37}, w.values), WeightUse::kMatmul, &owner);
  args.out = two({2});
  backend_->matmul(args);
  EXPECT_TRUE(same_bits(values(args.out), run_matmul(*backend_, x, w, {}, 2)));

  const Weight half = Weight::random(rng, DType::kBF16, 2, 37, 0.2f);
  const Tensor rows = two({37}, DType::kBF16);
  for (int64_t n = 0; n < 2; ++n)
    std::copy_n(half.bits.begin() + n * 37, 37, rows.ptr<uint16_t>() + n * kStride);
  args.weight = backend_->import_weight(rows, WeightUse::kMatmul, &half_owner);
  // 16-bit elements lie at half the address: beyond the floats of row 0, still in the mapping.
  backend_->matmul(args);
  EXPECT_TRUE(same_bits(values(args.out), run_matmul(*backend_, x, half, {}, 2)));
}

TEST_P(Offsets, RowsOfEverythingElse) {
  Rng rng(101);
  const auto x = rng.normals(2 * 37), z = rng.normals(2 * 37), residual = rng.normals(2 * 37);
  auto weight = rng.normals(37);

  RmsNormArgs norm;
  norm.x = two({37}, x), norm.residual = two({37}, residual), norm.out = two({37});
  norm.weight = dense({37}, weight);
  backend_->rms_norm(norm);
  const NormResult want = run_rms_norm(*backend_, x, residual, weight, 37, norm.eps);
  EXPECT_TRUE(same_bits(values(norm.out), want.out));
  EXPECT_TRUE(same_bits(values(norm.residual), want.residual));

  GatedRmsNormArgs gated;
  gated.x = two({37}, x), gated.z = two({37}, z), gated.out = two({37});
  gated.weight = norm.weight;
  backend_->gated_rms_norm(gated);
  GatedNorm plain{37};
  plain.x = x, plain.z = z, plain.weight = weight;
  EXPECT_TRUE(same_bits(values(gated.out), plain.run(*backend_)));

  const std::vector<int32_t> swap = {1, 0};
  std::vector<float> swapped = cut_rows(x, 2, 1, 1);
  append(swapped, cut_rows(x, 2, 0, 1));
  EmbeddingArgs embedding;
  embedding.weight = norm.residual;  // any matrix will do
  embedding.ids = swap;
  embedding.out = two({37});
  backend_->embedding(embedding);
  EXPECT_TRUE(
      same_bits(cut_rows(values(embedding.out), 2, 0, 1), cut_rows(want.residual, 2, 1, 1)));
  EXPECT_TRUE(
      same_bits(cut_rows(values(embedding.out), 2, 1, 1), cut_rows(want.residual, 2, 0, 1)));
  const Tensor gathered = two({37});
  backend_->gather_rows(gated.x, swap, gathered);
  EXPECT_TRUE(same_bits(values(gathered), swapped));

  const Tensor state = two({5, 7}, rng.normals(70));
  backend_->state_copy(state, 1, 0);
  const auto copied = values(state);
  EXPECT_TRUE(same_bits(cut_rows(copied, 2, 0, 1), cut_rows(copied, 2, 1, 1)));
  backend_->state_zero(state, 1);
  EXPECT_TRUE(same_bits(cut_rows(values(state), 2, 0, 1), cut_rows(copied, 2, 0, 1)));
  EXPECT_TRUE(same_bits(cut_rows(values(state), 2, 1, 1), std::vector<float>(35)));

  std::vector<float> logits(2 * 37, 0);
  logits[5] = 1, logits[37 + 30] = 2;
  const SampleParams greedy[2] = {{.temperature = 0}, {.temperature = 0}};
  int32_t ids[2];
  backend_->sample({two({37}, logits), 37, greedy, ids});
  EXPECT_EQ(ids[0], 5);
  EXPECT_EQ(ids[1], 30);
}

TEST_P(Offsets, CausalConv1d) {
  Rng rng(102);
  auto p = CausalConv1dProblem::random(rng, 2, 19, 4);
  const auto state = p.random_state(rng, 2);
  const Batch batch = Batch::single(2, 1);
  CausalConv1dArgs args;
  args.x = two({19}, p.x), args.out = two({19}), args.conv_state = two({3, 19}, state);
  args.weight = dense({4, 19}, p.weight), args.bias = dense({19}, p.bias);
  args.batch = batch.packed();
  backend_->causal_conv1d(args);
  const RunResult got{values(args.out), values(args.conv_state)};
  EXPECT_TRUE(same_bits(got, p.run(*backend_, batch, state)));
}

TEST_P(Offsets, SelectiveScan) {
  Rng rng(103);
  auto p = SelectiveScanProblem::random(rng, 2, 20, 5, 2);
  const auto state = p.random_state(rng, 2);
  const Batch batch = Batch::single(2, 1);
  SelectiveScanArgs args;
  args.u = two({20}, p.u), args.delta = two({20}, p.delta), args.z = two({20}, p.z);
  args.B = two({2, 5}, p.B), args.C = two({2, 5}, p.C), args.out = two({20});
  args.A_log2e = dense({5, 20}, p.A_log2e), args.D = dense({20}, p.D);
  args.delta_bias = dense({20}, p.delta_bias);
  args.ssm_state = two({5, 20}, state);
  args.batch = batch.packed();
  backend_->selective_scan(args);
  const RunResult got{values(args.out), values(args.ssm_state)};
  EXPECT_TRUE(same_bits(got, p.run(*backend_, batch, state)));
}

TEST_P(Offsets, SsdScan) {
  Rng rng(104);
  auto p = SsdScanProblem::random(rng, 2, 4, 5, 9, 2);
  const auto state = p.random_state(rng, 2);
  const Batch batch = Batch::single(2, 1);
  SsdScanArgs args;
  args.x = two({4, 5}, p.x), args.dt = two({4}, p.dt), args.z = two({4, 5}, p.z);
  args.B = two({2, 9}, p.B), args.C = two({2, 9}, p.C), args.out = two({4, 5});
  args.A_log2e = dense({4}, p.A_log2e), args.D = dense({4}, p.D),
  args.dt_bias = dense({4}, p.dt_bias);
  args.ssm_state = two({4, 5, 9}, state);
  args.batch = batch.packed();
  backend_->ssd_scan(args);
  const RunResult got{values(args.out), values(args.ssm_state)};
  EXPECT_TRUE(same_bits(got, p.run(*backend_, batch, state)));
}

}  // namespace
}  // namespace adder::testing
