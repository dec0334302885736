#include "engine/quantize.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/quant.h"
#include "engine/calibration.h"
#include "engine/engine_testing.h"
#include "engine/quantize_plan.h"
#include "engine/scoring.h"
#include "io/tensor_values.h"
#include "testing/checkpoint_writer.h"
#include "testing/compare.h"

namespace adder {
namespace {

using namespace adder::testing;

// A model in memory, with matrices wide enough for every block format.
struct TestModel {
  ModelShape shape;
  TestTensors tensors;
  std::string image;

  explicit TestModel(bool mamba2, int64_t d_model = 256) {
    shape = {.mamba2 = mamba2, .d_model = d_model, .d_inner = 2 * d_model, .n_heads = 8};
    shape.dt_rank = 16;
    tensors = random_tensors(shape);
    // Small enough that the output does not hang on the last bit of an input.
    for (auto& [name, t] : tensors) {
      if (t.shape.size() != 2 || name.ends_with("A_log")) continue;
      for (int64_t i = 0; i < t.size(); ++i) set_value(t, i, 0.2f * value_at(t, i));
    }
  }
  std::shared_ptr<const Checkpoint> open() {
    image = safetensors_image(tensors);
    return std::make_shared<const Checkpoint>(Checkpoint::from_memory(
        as_bytes(image), hugging_face_config(shape).dump(), "model in memory"));
  }
};

std::vector<float> values_of(const StoredTensor& t) {
  std::vector<float> values(static_cast<size_t>(t.size()));
  read_values(t, 0, values);
  return values;
}

const TensorReport& find(const QuantizeReport& report, const std::string& name) {
  for (const TensorReport& t : report.tensors)
    if (t.name == name) return t;
  throw std::runtime_error("no tensor " + name);
}

std::vector<float> logits_of(std::shared_ptr<const Checkpoint> checkpoint,
                             const std::string& device) {
  Engine engine(std::move(checkpoint), nullptr, {.device = device, .threads = 2});
  return last_logits(engine, random_ids(5, 12, 64), 12);
}

std::shared_ptr<const Checkpoint> open(const std::string& path) {
  return std::make_shared<const Checkpoint>(Checkpoint::open(path));
}

TEST(QuantizePlan, DtypesFollowThePolicy) {
  using enum DType;
  using enum TensorRole;
  for (const DType asked : {kBF16, kF16, kQ8_0, kQ4_0, kQ4_K}) {
    EXPECT_EQ(stored_dtype(kExact, asked, 256), kF32);
    EXPECT_EQ(stored_dtype(kMatrix, asked, 768), asked);
    EXPECT_EQ(stored_dtype(kSensitive, asked, 768),
              asked == kQ4_0 || asked == kQ4_K ? kQ8_0 : asked);
  }
  EXPECT_EQ(stored_dtype(kMatrix, kQ4_K, 192), kQ8_0);
  EXPECT_EQ(stored_dtype(kMatrix, kQ4_K, 48), kF16);
  ModelConfig config;
  config.d_model = 768;
  EXPECT_EQ(type_for_model(kQ4_K, config), kQ4_K);
  config.d_model = 384;
  EXPECT_EQ(type_for_model(kQ4_K, config), kQ8_0);
  EXPECT_EQ(type_for_model(kQ4_0, config), kQ4_0);
  EXPECT_EQ(stored_dtype(kMatrix, kQ8_0, 48), kF16);
  EXPECT_EQ(stored_dtype(kSensitive, kQ4_0, 48), kF16);  // mamba-130m's dt_proj
  EXPECT_EQ(stored_dtype(kSensitive, kBF16, 48), kBF16);
}

class Quantize : public ::testing::TestWithParam<bool> {
 protected:
  TestModel model_{GetParam()};
  TempDir dir_;
};
INSTANTIATE_TEST_SUITE_P(Mixer, Quantize, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "Mamba2" : "Mamba1"; });

TEST_P(Quantize, WritesEveryTensorInItsDtypeAndReportsItsError) {
  const auto source = model_.open();
  for (const DType type : {DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K}) {
    const std::string path = dir_.path("m.gguf");
    const QuantizeReport report = quantize_model(*source, path, {.type = type, .threads = 2});
    const auto written = open(path);
    ASSERT_EQ(report.tensors.size(), written->tensors().size());
    EXPECT_EQ(report.bytes, written->total_bytes());
    EXPECT_EQ(report.source_bytes, source->total_bytes());
    for (const TensorReport& t : report.tensors)
      EXPECT_EQ(written->find(t.name)->dtype, t.to) << t.name;
    EXPECT_EQ(find(report, "token_embd.weight").to, type);
    EXPECT_EQ(find(report, "blk.1.ssm_out.weight").to, type);
    EXPECT_EQ(find(report, "blk.0.ssm_in.weight").to, type);
    const bool four = type == DType::kQ4_0 || type == DType::kQ4_K;
    if (GetParam()) {
      EXPECT_EQ(written->find("blk.0.ssm_in_dt.weight") != nullptr, four);
      if (four) {
        EXPECT_EQ(find(report, "blk.0.ssm_in_dt.weight").to, DType::kQ8_0);
      }
    } else {
      EXPECT_EQ(find(report, "blk.0.ssm_x.weight").to, four ? DType::kQ8_0 : type);
      // Rows of 16.
      EXPECT_EQ(find(report, "blk.0.ssm_dt.weight").to,
                type == DType::kBF16 ? DType::kBF16 : DType::kF16);
    }
    for (const char* exact : {"blk.0.ssm_a", "blk.0.ssm_d", "blk.0.ssm_conv1d.weight",
                              "blk.0.ssm_dt.bias", "blk.0.attn_norm.weight"}) {
      EXPECT_EQ(find(report, exact).to, DType::kF32) << exact;
      EXPECT_EQ(find(report, exact).max_error, 0) << exact;
    }

    // The report's numbers, from the file.
    const auto want = values_of(*source->find("backbone.layers.1.mixer.out_proj.weight"));
    const auto got = values_of(*written->find("blk.1.ssm_out.weight"));
    double error = 0, power = 0, largest = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double e = static_cast<double>(got[i]) - want[i];
      error += e * e, power += static_cast<double>(want[i]) * want[i];
      largest = std::max(largest, std::abs(e));
    }
    const TensorReport& t = find(report, "blk.1.ssm_out.weight");
    EXPECT_NEAR(t.relative_rms, std::sqrt(error / power), 1e-12);
    EXPECT_EQ(t.max_error, largest);
    EXPECT_EQ(t.bits_per_weight, type == DType::kQ8_0 ? 8.5 : four ? 4.5 : 16);
    EXPECT_LT(t.relative_rms, type == DType::kQ8_0 ? 0.006 : four ? 0.085 : 0.003);
  }
}

TEST_P(Quantize, ExactTensorsKeepTheirValues) {
  const auto source = model_.open();
  quantize_model(*source, dir_.path("m.gguf"), {.type = DType::kQ4_0, .threads = 1});
  const auto written = open(dir_.path("m.gguf"));
  const std::string layer = "backbone.layers.1.";
  EXPECT_EQ(values_of(*written->find("blk.1.ssm_conv1d.weight")),
            values_of(*source->find(layer + "mixer.conv1d.weight")));
  EXPECT_EQ(values_of(*written->find("blk.1.ssm_d")), values_of(*source->find(layer + "mixer.D")));
  auto rates = values_of(*source->find(layer + "mixer.A_log"));
  for (float& a : rates) a = static_cast<float>(-std::exp(static_cast<double>(a)));
  EXPECT_EQ(values_of(*written->find("blk.1.ssm_a")), rates);
}

// The model that comes out computes what the source does, as far as its rounding allows: the error
// of the weights (F16 0.0002, BF16 0.0017, Q8_0 0.005, 4 bits 0.07 to 0.08) and of 8-bit
// activations (0.005), which 2 layers and their recurrence made 7 times as large at most. A tensor
// in a wrong place gives errors of 1 and more.
TEST_P(Quantize, TheModelIsStillTheSameModel) {
  const auto source = model_.open();
  const auto want = logits_of(source, "cpu");
  double power = 0;
  for (const float v : want) power += static_cast<double>(v) * v;
  double last = 0;
  for (const auto& [type, bar] :
       {std::pair(DType::kF16, 2e-3), std::pair(DType::kBF16, 1e-2), std::pair(DType::kQ8_0, 0.06),
        std::pair(DType::kQ4_K, 0.5), std::pair(DType::kQ4_0, 0.5)}) {
    quantize_model(*source, dir_.path("m.gguf"), {.type = type, .threads = 2});
    const auto got = logits_of(open(dir_.path("m.gguf")), "cpu");
    ASSERT_EQ(got.size(), want.size());
    double error = 0;
    for (size_t i = 0; i < want.size(); ++i)
      error += (static_cast<double>(got[i]) - want[i]) * (static_cast<double>(got[i]) - want[i]);
    const double relative = std::sqrt(error / power);
    EXPECT_LT(relative, bar) << dtype_name(type);
    if (type != DType::kQ4_0) {
      EXPECT_GT(relative, last) << dtype_name(type);  // each rounds more than the one before
    }
    last = relative;
  }
}

TEST_P(Quantize, ThreadsDoNotChangeAByte) {
  const auto source = model_.open();
  for (const DType type : {DType::kQ8_0, DType::kQ4_K}) {
    quantize_model(*source, dir_.path("one.gguf"), {.type = type, .threads = 1});
    quantize_model(*source, dir_.path("three.gguf"), {.type = type, .threads = 3});
    EXPECT_EQ(read_file(dir_.path("one.gguf")), read_file(dir_.path("three.gguf")));
  }
}

TEST_P(Quantize, AFolderHoldsTheSourcesNamesAndOpensAlike) {
  const auto source = model_.open();
  const std::string folder = dir_.path("out");
  const QuantizeReport report = quantize_model(*source, folder + "/", {.type = DType::kBF16});
  EXPECT_EQ(find(report, "backbone.layers.0.mixer.in_proj.weight").to, DType::kBF16);
  EXPECT_EQ(find(report, "backbone.layers.0.mixer.A_log").to, DType::kF32);
  const auto written = open(folder);
  EXPECT_EQ(written->dialect(), Dialect::kHuggingFace);
  EXPECT_EQ(values_of(*written->find("backbone.layers.0.mixer.A_log")),
            values_of(*source->find("backbone.layers.0.mixer.A_log")));
  EXPECT_EQ(logits_of(written, "cpu").size(), logits_of(source, "cpu").size());
  // Nothing else is left, and what exists is not overwritten.
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, std::set<std::string>{"out"});
  expect_bad_input([&] { quantize_model(*source, folder, {.type = DType::kBF16}); },
                   "expected a new or an empty folder");
}

TEST_P(Quantize, AgainFromGgufKeepsTheMetadata) {
  const auto source = model_.open();
  quantize_model(*source, dir_.path("a.gguf"), {.type = DType::kF16});
  const auto first = open(dir_.path("a.gguf"));
  const QuantizeReport report = quantize_model(*first, dir_.path("b.gguf"), {.type = DType::kQ8_0});
  EXPECT_TRUE(report.warnings.empty());
  const auto second = open(dir_.path("b.gguf"));
  EXPECT_EQ(values_of(*second->find("blk.0.ssm_a")), values_of(*first->find("blk.0.ssm_a")));
  const GgufMetadata &from = *first->gguf(), &to = *second->gguf();
  // Only the first file has no block formats, whose version is a key of its own.
  EXPECT_EQ(to.values().size(), from.values().size() + 1);
  EXPECT_EQ(to.get_int("general.quantization_version"), 2);
  EXPECT_EQ(to.get_int("general.file_type"), 7);
  // Twice through the same rounding changes nothing more.
  EXPECT_EQ(quantize_model(*second, dir_.path("c.gguf"), {.type = DType::kQ8_0}).warnings.size(),
            1u);
  EXPECT_EQ(values_of(*open(dir_.path("c.gguf"))->find("blk.1.ssm_out.weight")),
            values_of(*second->find("blk.1.ssm_out.weight")));
}

TEST_P(Quantize, RefusesWhatCannotBeDoneAndLeavesNothing) {
  const auto leaves_nothing = [&] { EXPECT_TRUE(std::filesystem::is_empty(dir_.path())); };
  const std::string target = dir_.path("m.gguf");
  const std::string out_proj = "backbone.layers.1.mixer.out_proj.weight";
  const float good = value_at(model_.tensors[out_proj], 777);
  for (const float bad : {NAN, INFINITY}) {
    set_value(model_.tensors[out_proj], 777, bad);
    const auto source = model_.open();
    for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K})
      expect_bad_input([&] { quantize_model(*source, target, {.type = type}); },
                       "tensor '" + out_proj + "': expected finite values, got");
  }
  set_value(model_.tensors[out_proj], 777, 70000.0f);
  {
    const auto source = model_.open();
    expect_bad_input([&] { quantize_model(*source, target, {.type = DType::kF16}); },
                     "F16 cannot hold 70000 at element 777; BF16 can");
    leaves_nothing();
    quantize_model(*source, target, {.type = DType::kBF16});
    std::filesystem::remove(target);
  }
  set_value(model_.tensors[out_proj], 777, good);
  const auto source = model_.open();
  expect_bad_input([&] { quantize_model(*source, target, {.type = DType::kQ5_K}); },
                   "type: expected");
  expect_bad_input([&] { quantize_model(*source, dir_.path("m"), {.type = DType::kQ8_0}); },
                   "ends in .gguf");
  expect_bad_input(
      [&] { quantize_model(*source, dir_.path("m.safetensors"), {.type = DType::kF16}); },
      "ends in .gguf");
  std::atomic<bool> cancel{true};
  EXPECT_THROW(quantize_model(*source, target, {.type = DType::kQ8_0, .cancel = &cancel}), Error);
  leaves_nothing();
}

// A byte that changes after it was written, as a failing disk would do.
TEST_P(Quantize, ReadsBackWhatItWrote) {
  const auto source = model_.open();
  const auto spoil = [&](int64_t done, int64_t total) {
    if (done < total) return;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-5000, std::ios::end);
      const char byte = static_cast<char>(file.get() ^ 1);
      file.seekp(-5000, std::ios::end);
      file.put(byte);
    }
  };
  try {
    quantize_model(*source, dir_.path("m.gguf"), {.type = DType::kQ8_0, .on_progress = spoil});
    ADD_FAILURE() << "a spoilt file was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("is not what was written"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST(QuantizeMamba2, DtRowsGetATensorOfTheirOwn) {
  TestModel model(true);
  const TempDir dir;
  const auto source = model.open();
  quantize_model(*source, dir.path("split.gguf"), {.type = DType::kQ4_0});
  quantize_model(*source, dir.path("whole.gguf"), {.type = DType::kQ4_0, .llama_compatible = true});
  const auto split = open(dir.path("split.gguf")), whole = open(dir.path("whole.gguf"));
  EXPECT_EQ(whole->find("blk.0.ssm_in_dt.weight"), nullptr);
  const StoredTensor &in = *source->find("backbone.layers.0.mixer.in_proj.weight"),
                     &dt = *split->find("blk.0.ssm_in_dt.weight");
  EXPECT_EQ(dt.dtype, DType::kQ8_0);
  EXPECT_EQ(dt.shape, (std::vector<int64_t>{8, 256}));
  EXPECT_EQ(split->find("blk.0.ssm_in.weight")->shape[0] + 8, in.shape[0]);
  const auto all = values_of(in), rows = values_of(dt);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR(rows[i], all[all.size() - rows.size() + i], 0.01f) << i;
  // The other rows are the same in both files.
  const auto a = values_of(*split->find("blk.0.ssm_in.weight")),
             b = values_of(*whole->find("blk.0.ssm_in.weight"));
  EXPECT_EQ(a, std::vector<float>(b.begin(), b.begin() + static_cast<ptrdiff_t>(a.size())));
  EXPECT_EQ(split->find("blk.1.ssm_in_dt.weight")->dtype, DType::kQ8_0);
}

// The rows of an in_proj in two parts, in the order of one.
std::vector<float> joined_in_proj(const Checkpoint& c) {
  std::vector<float> rows = values_of(*c.find("blk.1.ssm_in.weight"));
  const std::vector<float> dt = values_of(*c.find("blk.1.ssm_in_dt.weight"));
  rows.insert(rows.end(), dt.begin(), dt.end());
  return rows;
}

TEST(QuantizeMamba2, DtRowsRejoinTheOthersWhereOneTypeHoldsBoth) {
  TestModel model(true);
  const TempDir dir;
  quantize_model(*model.open(), dir.path("split.gguf"), {.type = DType::kQ4_0});
  const auto split = open(dir.path("split.gguf"));
  const auto want = joined_in_proj(*split);

  // What every other program reads: one tensor with the very values.
  quantize_model(*split, dir.path("folder"), {.type = std::nullopt});
  const auto folder = open(dir.path("folder"));
  EXPECT_EQ(folder->find("backbone.layers.1.mixer.in_proj_dt.weight"), nullptr);
  const StoredTensor& in = *folder->find("backbone.layers.1.mixer.in_proj.weight");
  EXPECT_EQ(in.dtype, DType::kF32);
  EXPECT_TRUE(same_bits(values_of(in), want));

  // GGUF has no type that holds both without loss.
  const QuantizeReport kept = quantize_model(*split, dir.path("kept.gguf"), {.type = std::nullopt});
  EXPECT_TRUE(same_bits(joined_in_proj(*open(dir.path("kept.gguf"))), want));
  ASSERT_EQ(kept.warnings.size(), 1u);
  EXPECT_NE(kept.warnings[0].find("--llama-compatible"), std::string::npos) << kept.warnings[0];

  // Nor has it the parts where both get one type.
  for (const QuantizeOptions& o :
       {QuantizeOptions{.type = DType::kQ8_0},
        QuantizeOptions{.type = DType::kQ4_K, .llama_compatible = true}}) {
    const QuantizeReport report = quantize_model(*split, dir.path("one.gguf"), o);
    EXPECT_EQ(report.source_bytes, split->total_bytes());
    const auto one = open(dir.path("one.gguf"));
    EXPECT_EQ(one->find("blk.1.ssm_in_dt.weight"), nullptr);
    const StoredTensor& whole = *one->find("blk.1.ssm_in.weight");
    EXPECT_EQ(whole.dtype, *o.type);
    // Half of a step, 1/127 of the largest weight or 1/15 of the range of weights below 1.25.
    EXPECT_TRUE(close(values_of(whole), want, Tolerance{*o.type == DType::kQ8_0 ? 0.01 : 0.1}));
  }
  // Four bits again: the parts stay apart.
  quantize_model(*split, dir.path("again.gguf"), {.type = DType::kQ4_K});
  EXPECT_EQ(open(dir.path("again.gguf"))->find("blk.0.ssm_in_dt.weight")->dtype, DType::kQ8_0);
}

// Two products with the rows of one are that product, to the bit, bias included.
TEST(QuantizeMamba2, ASplitInProjComputesTheSame) {
  TestModel model(true, 64);
  Rng rng(3);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string mixer = fmt::format("backbone.layers.{}.mixer.", layer);
    const int64_t rows = model.tensors[mixer + "in_proj.weight"].shape[0];
    model.tensors[mixer + "in_proj.bias"] = f32_tensor({rows}, rng.normals(rows));
  }
  const auto whole = model.open();
  const auto want_ref = logits_of(whole, "ref"), want_cpu = logits_of(whole, "cpu");
  TestModel split = model;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string mixer = fmt::format("backbone.layers.{}.mixer.", layer);
    TestTensor& in = split.tensors[mixer + "in_proj.weight"];
    TestTensor& dt = split.tensors[mixer + "in_proj_dt.weight"];
    dt.shape = {8, 64};
    in.shape[0] -= 8;
    const auto keep = static_cast<size_t>(in.size()) * sizeof(float);
    dt.bytes = in.bytes.substr(keep);
    in.bytes.resize(keep);
  }
  const auto source = split.open();
  EXPECT_TRUE(same_bits(logits_of(source, "ref"), want_ref));
  EXPECT_TRUE(same_bits(logits_of(source, "cpu"), want_cpu));
  // And so is what it is converted to.
  const TempDir dir;
  quantize_model(*source, dir.path("folder"), {.type = std::nullopt});
  EXPECT_TRUE(same_bits(logits_of(open(dir.path("folder")), "cpu"), want_cpu));
  quantize_model(*source, dir.path("m.gguf"), {.type = std::nullopt});
  EXPECT_EQ(open(dir.path("m.gguf"))->find("blk.0.ssm_in_dt.weight"), nullptr);
  // A value that the type cannot hold is named where it lies.
  set_value(split.tensors["backbone.layers.1.mixer.in_proj_dt.weight"], 70, 1e6f);
  expect_bad_input([&] { quantize_model(*split.open(), dir.path("f16"), {.type = DType::kF16}); },
                   "in_proj_dt.weight': F16 cannot hold 1000000 at element 70");
}

TEST(Calibration, MeasuresTheInputOfEveryMatrix) {
  for (const bool mamba2 : {false, true}) {
    TestModel model(mamba2, 64);
    const auto source = model.open();
    const auto ids = random_ids(9, 300, 64);
    std::vector<int64_t> progress;
    CalibrationOptions options;
    options.threads = 2;
    options.on_progress = [&](int64_t done) { progress.push_back(done); };
    const Importance importance = calibrate(source, ids, options);
    EXPECT_EQ(progress, (std::vector<int64_t>{256, 300}));
    EXPECT_EQ(importance.size(), mamba2 ? 5u : 9u);  // the head, and 2 or 4 per layer
    EXPECT_EQ(importance.at("backbone.embeddings.weight").size(), 64u);
    EXPECT_EQ(importance.at("backbone.layers.1.mixer.out_proj.weight").size(), 128u);

    // The input of the first in_proj is the normed embedding.
    const auto table = values_of(*source->find("backbone.embeddings.weight")),
               norm = values_of(*source->find("backbone.layers.0.norm.weight"));
    std::vector<double> want(64);
    for (const int32_t id : ids) {
      const float* row = table.data() + id * 64;
      double squares = 0;
      for (size_t k = 0; k < 64; ++k) squares += static_cast<double>(row[k]) * row[k];
      for (size_t k = 0; k < 64; ++k)
        want[k] += row[k] * row[k] / (squares / 64 + 1e-5) * norm[k] * norm[k] / 300;
    }
    double mean = 0;
    for (const double v : want) mean += v / 64;
    for (double& v : want) v += 0.01 * mean;
    EXPECT_TRUE(close(importance.at("backbone.layers.0.mixer.in_proj.weight"), want,
                      Tolerance{0, 1e-5}));  // float32 products of 64 terms
  }
}

TEST(Calibration, LowersTheErrorThatItWeighs) {
  TestModel model(false);
  // One loud column in eight.
  for (int64_t k = 0; k < 256; k += 8)
    set_value(model.tensors["backbone.layers.0.norm.weight"], k, 20.0f);
  const auto source = model.open();
  const TempDir dir;
  const std::string name = "backbone.layers.0.mixer.in_proj.weight";
  const Importance importance = calibrate(source, random_ids(9, 100, 64), {.threads = 2});
  const auto& weights = importance.at(name);
  const auto error = [&](const QuantizeOptions& o) {
    quantize_model(*source, dir.path("m.gguf"), o);
    const auto got = values_of(*open(dir.path("m.gguf"))->find("blk.0.ssm_in.weight")),
               want = values_of(*source->find(name));
    double sum = 0;
    for (size_t i = 0; i < want.size(); ++i)
      sum += weights[i % 256] * std::pow(static_cast<double>(got[i]) - want[i], 2);
    return sum;
  };
  for (const DType type : {DType::kQ4_0, DType::kQ4_K}) {
    EXPECT_LT(error({.type = type, .importance = importance}), 0.8 * error({.type = type}));
  }
}

TEST(Calibration, RefusesWhatTellsNothing) {
  TestModel model(false, 64);
  const auto source = model.open();
  expect_bad_input([&] { calibrate(source, std::vector<int32_t>{1}, {}); }, "at least 2 tokens");
  expect_bad_input([&] { calibrate(source, std::vector<int32_t>{1, 64}, {}); }, "expected 0 to 63");
}

}  // namespace
}  // namespace adder
