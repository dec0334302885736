// What only moves data: embedding, gather_rows, read and write. All exact.

#include "core/error.h"
#include "testing/dense.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

class Embedding : public BackendTest {
 protected:
  std::vector<float> run(const Weight& weight, const std::vector<int32_t>& ids,
                         const Layout& layout) {
    OpTensor table = weight.tensor(*backend_, layout);
    const auto n = static_cast<int64_t>(ids.size());
    OpTensor out(*backend_, {n, weight.cols}, layout, {});
    EmbeddingArgs args;
    args.weight = table.view();
    args.ids = ids;
    args.out = out.view();
    backend_->embedding(args);
    return out.read();
  }
};
ADDER_TEST_ALL_TARGETS(Embedding);

TEST_P(Embedding, RowsAreWidenedExactly) {
  Rng rng(80);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t d_model = 1; d_model <= 35; ++d_model) {
      const Weight w = Weight::random(rng, dtype, 11, d_model, 1);
      std::vector<int32_t> ids;
      for (int64_t t = 0; t < d_model % 4 * 3; ++t)
        ids.push_back(static_cast<int32_t>(rng.below(11)));
      std::vector<float> want;
      for (int32_t id : ids)
        want.insert(want.end(), w.values.begin() + id * d_model,
                    w.values.begin() + (id + 1) * d_model);
      for (const Layout& layout : kLayouts)
        EXPECT_TRUE(same_bits(run(w, ids, layout), want)) << dtype_name(dtype) << " " << d_model;
    }
  }
}

TEST_P(Embedding, BlocksAreDequantizedExactly) {
  if (!keeps_block_formats()) GTEST_SKIP() << "see tests/xla/quantized_test.cc";
  Rng rng(84);
  for (DType dtype : kBlockFormats) {
    for (int64_t blocks : {1, 2, 5}) {
      const int64_t d_model = blocks * block_shape(dtype).elements;
      const Weight w = Weight::random(rng, dtype, 7, d_model, 1);
      const std::vector<int32_t> ids = {6, 0, 3, 3, 1};
      std::vector<float> want;
      for (int32_t id : ids)
        want.insert(want.end(), w.values.begin() + id * d_model,
                    w.values.begin() + (id + 1) * d_model);
      for (const Layout& layout : kLayouts)
        EXPECT_TRUE(same_bits(run(w, ids, layout), want)) << dtype_name(dtype) << " " << d_model;
    }
  }
}

TEST_P(Embedding, EverySixteenBitPattern) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < 256; ++id) ids.push_back(255 - id);
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Weight w{dtype, 256, 256};
    for (uint32_t b = 0; b < 65536; ++b) w.bits.push_back(static_cast<uint16_t>(b));
    const auto got = run(w, ids, kPacked);
    size_t wrong = 0;
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>((255 - i / 256) * 256 + i % 256);
      const float want = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      wrong += std::isnan(want) ? !std::isnan(got[i])
                                : std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want);
    }
    EXPECT_EQ(wrong, 0u) << dtype_name(dtype);
  }
}

class Copies : public BackendTest {};
ADDER_TEST_ALL_TARGETS(Copies);

TEST_P(Copies, GatherRows) {
  Rng rng(81);
  for (int64_t width : {1, 7, 33}) {
    auto x = rng.normals(9 * width);
    x[0] = NAN;  // moved as it is
    const std::vector<int32_t> rows = {8, 0, 3, 3, 7};
    std::vector<float> want;
    for (int32_t row : rows)
      want.insert(want.end(), x.begin() + row * width, x.begin() + (row + 1) * width);
    for (const Layout& layout : kLayouts) {
      OpTensor tx(*backend_, {9, width}, layout, x), out(*backend_, {5, width}, layout, {});
      backend_->gather_rows(tx.view(), rows, out.view());
      EXPECT_TRUE(same_bits(out.read(), want)) << width;
    }
  }
}

TEST_P(Copies, MemoryIsZeroAndKeepsWhatIsWritten) {
  Rng rng(82);
  const Buffer buffer = backend_->allocate(400);
  const Tensor t(buffer.data(), DType::kF32, {10, 10});
  std::vector<float> host = rng.normals(100);
  backend_->read(t, std::as_writable_bytes(std::span(host)));
  EXPECT_TRUE(same_bits(host, std::vector<float>(100)));
  const auto part = rng.normals(30);
  backend_->write(t.slice(0, 4, 3), std::as_bytes(std::span(part)));
  backend_->read(t, std::as_writable_bytes(std::span(host)));
  std::vector<float> want(100);
  std::copy(part.begin(), part.end(), want.begin() + 40);
  EXPECT_TRUE(same_bits(host, want));
  EXPECT_THROW(backend_->write(t, std::as_bytes(std::span(part))), Error);
  EXPECT_THROW(backend_->read(t.slice(1, 0, 3), std::as_writable_bytes(std::span(host)).first(120)),
               Error);
}

TEST_P(Copies, ImportedWeightsAreUsable) {
  Rng rng(83);
  const Weight w = Weight::random(rng, DType::kBF16, 6, 10, 1);
  std::vector<uint16_t> bits = w.bits;
  Buffer owner;
  const Tensor host(bits.data(), DType::kBF16, {6, 10});
  const Tensor weight = backend_->import_weight(host, WeightUse::kRows, &owner);
  EXPECT_EQ(weight.describe(), host.describe());
  OpTensor out(*backend_, {1, 10}, kPacked, {});
  const std::vector<int32_t> ids = {4};
  EmbeddingArgs args;
  args.weight = weight;
  args.ids = ids;
  args.out = out.view();
  backend_->embedding(args);
  EXPECT_TRUE(same_bits(out.read(), std::span(w.values).subspan(40, 10)));
}

}  // namespace
}  // namespace adder::testing
