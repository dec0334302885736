// Quantized weights on the XLA backend are the float32 ones that they stand for.

#include <cmath>

#include "engine/quantize.h"
#include "engine/scoring.h"
#include "testing/checkpoint_writer.h"
#include "testing/dense.h"
#include "testing/fake_pjrt.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

Tensor host_tensor(const Weight& w) {
  const void* data = w.blocks.empty() ? static_cast<const void*>(w.values.data()) : w.blocks.data();
  return {const_cast<void*>(data), w.dtype, {w.rows, w.cols}};
}

// With a weight that lies on the host, as those of a file do.
std::vector<float> product(const std::string& device, const Weight& w, const std::vector<float>& x,
                           int64_t rows) {
  const auto backend = make_backend(device);
  OpTensor in(*backend, {rows, w.cols}, kPacked, x), out(*backend, {rows, w.rows}, kPacked, {});
  Buffer owner;
  const Tensor weight = backend->import_weight(host_tensor(w), WeightUse::kMatmul, &owner);
  backend->matmul({in.view(), weight, {}, out.view()});
  return out.read();
}

TEST(XlaQuantized, RowsOfAnEmbeddingAreDequantizedExactly) {
  Rng rng(71);
  const auto backend = make_backend(xla_device());
  const std::vector<int32_t> ids = {6, 0, 3, 3, 1};
  for (const DType dtype : kBlockFormats) {
    const Weight w = Weight::random(rng, dtype, 7, 2 * block_shape(dtype).elements, 1);
    OpTensor out(*backend, {5, w.cols}, kPacked, {});
    Buffer owner;
    EmbeddingArgs args;
    args.weight = backend->import_weight(host_tensor(w), WeightUse::kRows, &owner);
    args.ids = ids;
    args.out = out.view();
    backend->embedding(args);
    std::vector<float> want;
    for (const int32_t id : ids)
      want.insert(want.end(), w.values.begin() + id * w.cols, w.values.begin() + (id + 1) * w.cols);
    EXPECT_TRUE(same_bits(out.read(), want)) << dtype_name(dtype);
  }
}

TEST(XlaQuantized, ProductsAreThoseOfTheDequantizedWeights) {
  Rng rng(72);
  for (const DType dtype : kBlockFormats) {
    const int64_t in = 2 * block_shape(dtype).elements, out = 9, rows = 5;
    const Weight w = Weight::random(rng, dtype, out, in, 0.1f);
    const Weight wide{DType::kF32, out, in, w.values, {}, {}};
    auto x = rng.normals(rows * in);
    x[1] = 1e30f;  // in a block of 32, that beside it would be rounded away
    const auto got = product(xla_device(), w, x, rows);
    EXPECT_TRUE(same_numbers(got, product(xla_device(), wide, x, rows))) << dtype_name(dtype);
    EXPECT_TRUE(close(got, product("ref", wide, x, rows), kDot)) << dtype_name(dtype);
  }
}

// The reference rounds activations to multiples of max |x| / 127 within a block of 32, so each is
// off by at most half of one: that much the sums may differ.
TEST(XlaQuantized, ProductsDifferFromTheReferenceByItsRoundedActivations) {
  Rng rng(73);
  for (const DType dtype : kBlockFormats) {
    const int64_t in = 2 * block_shape(dtype).elements, out = 9, rows = 5;
    const Weight w = Weight::random(rng, dtype, out, in, 0.1f);
    const auto x = rng.normals(rows * in);
    const auto got = product(xla_device(), w, x, rows), want = product("ref", w, x, rows);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t n = 0; n < out; ++n) {
        double bound = kDot.atol;
        for (int64_t begin = 0; begin < in; begin += 32) {
          double largest = 0, weights = 0;
          for (int64_t k = begin; k < begin + 32; ++k) {
            largest = std::max(largest, std::abs(static_cast<double>(x[t * in + k])));
            weights += std::abs(static_cast<double>(w.values[n * in + k]));
          }
          bound += weights * largest / 254;
        }
        EXPECT_NEAR(got[t * out + n], want[t * out + n], bound) << dtype_name(dtype);
      }
    }
  }
}

std::vector<float> logits_on(const std::string& device, const std::string& path) {
  Engine engine(std::make_shared<const Checkpoint>(Checkpoint::open(path)), nullptr,
                {.device = device, .threads = 2});
  return last_logits(engine, random_ids(5, 12, 64), 12);
}

TEST(XlaQuantized, ModelsRun) {
  ModelShape shape{.mamba2 = true, .d_model = 256, .d_inner = 512, .n_heads = 8};
  auto tensors = random_tensors(shape);
  // Small enough that the output does not hang on the last bit of an input.
  for (auto& [name, t] : tensors) {
    if (t.shape.size() != 2) continue;
    for (int64_t i = 0; i < t.size(); ++i) set_value(t, i, 0.2f * value_at(t, i));
  }
  const std::string image = safetensors_image(tensors);
  const Checkpoint source = Checkpoint::from_memory(
      as_bytes(image), hugging_face_config(shape).dump(), "model in memory");
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    const ScopedFolder folder;
    const std::string small = folder.path() / "small.gguf", wide = folder.path() / "wide";
    quantize_model(source, small, {.type = type});
    quantize_model(Checkpoint::open(small), wide, {.type = std::nullopt});
    // The bars of `adder validate`.
    EXPECT_TRUE(close(logits_on(xla_device(), small), logits_on("ref", wide), {2e-4, 1e-5}))
        << dtype_name(type);
  }
}

}  // namespace
}  // namespace adder::testing
