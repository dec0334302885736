// What an exported model says of itself, and that its programs are those of the XLA backend.
#include "engine/stablehlo_export.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/model_source.h"
#include "io/checkpoint.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

namespace fs = std::filesystem;

class StablehloExportTest : public ::testing::Test {
 protected:
  StablehloExportTest()
      : folder_(fs::path(::testing::TempDir()) / ("adder_export." + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~StablehloExportTest() override { fs::remove_all(folder_); }

  static std::shared_ptr<const Checkpoint> checkpoint(const std::string& name) {
    return std::make_shared<const Checkpoint>(open_model(golden_path(name)));
  }
  std::string text(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::stringstream s;
    s << file.rdbuf();
    return s.str();
  }

  fs::path folder_;
};
class ExportedModel : public StablehloExportTest,
                      public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Golden, ExportedModel,
                         ::testing::Values("mamba2_hf", "mamba1_hf_f16", "falcon_mamba"),
                         [](const auto& test) { return test.param; });

TEST_P(ExportedModel, TheManifestSaysWhatEveryValueIs) {
  StablehloExportOptions options;
  options.blocks = {16, 30, 32};
  options.batch = 2;
  const auto files = export_stablehlo(checkpoint(GetParam()), folder_.string(), options);
  std::vector<std::string> names;
  for (const ExportedFile& f : files) {
    names.push_back(f.name);
    EXPECT_EQ(f.bytes, fs::file_size(folder_ / f.name)) << f.name;
  }
  const std::vector<std::string> expected = {
      "prefill_16.mlir",     "prefill_32.mlir", "step.mlir", "generate.mlir",
      "weights.safetensors", "manifest.json",   "run.py"};
  EXPECT_EQ(names, expected);

  const auto manifest = nlohmann::json::parse(text("manifest.json"));
  const std::string weights = text("weights.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, weights.data(), sizeof(length));
  const auto header = nlohmann::json::parse(weights.substr(8, length));
  std::set<std::string> states;
  for (const auto& s : manifest["states"]) states.insert(s["name"]);
  ASSERT_EQ(manifest["programs"].size(), 4u);
  for (const auto& p : manifest["programs"]) {
    SCOPED_TRACE(p["file"]);
    const std::string program = text(p["file"]);
    std::set<std::string> used_weights, used_states, inputs;
    std::string signature;
    const auto type_of = [](const nlohmann::json& v) {
      std::string t = "tensor<";
      for (const auto& n : v["shape"]) t += std::to_string(n.get<int64_t>()) + "x";
      return t + v["dtype"].get<std::string>() + ">";
    };
    for (const auto& a : p["arguments"]) {
      signature += (signature.empty() ? "" : ", ") + type_of(a);
      const std::string kind = a["kind"], name = a["name"];
      if (kind == "weight") {
        EXPECT_TRUE(used_weights.insert(name).second) << name;
        ASSERT_TRUE(header.contains(name)) << name;
        int64_t stored = 1, wanted = 1;
        for (const auto& n : header[name]["shape"]) stored *= n.get<int64_t>();
        for (const auto& n : a["shape"]) wanted *= n.get<int64_t>();
        EXPECT_EQ(stored, wanted) << name;
      } else if (kind == "state") {
        EXPECT_TRUE(used_states.insert(name).second) << name;
        const auto& result = p["results"][a["donated_to_result"].get<size_t>()];
        EXPECT_EQ(result["kind"], "state");
        EXPECT_EQ(result["name"], name);
        EXPECT_EQ(result["shape"], a["shape"]);
      } else {
        EXPECT_EQ(kind, "input");
        EXPECT_TRUE(inputs.insert(name).second) << name;
        EXPECT_TRUE(manifest["inputs"].contains(name)) << name;
      }
    }
    // The text has the same arguments in the same order.
    EXPECT_NE(program.find("function_type = (" + signature + ") ->"), std::string::npos)
        << signature;
    EXPECT_EQ(used_weights.size(), header.size());
    EXPECT_EQ(used_states, states);
    EXPECT_EQ(p["results"].size(), states.size() + (p["program"] == "generate" ? 5 : 1));
    std::set<std::string> expected_inputs = {"ids", "rows", "slots"};
    if (p["program"] == "prefill") expected_inputs.insert("valid");
    if (p["program"] == "generate")
      expected_inputs = {"steps", "token", "slot", "remaining", "index", "stop", "rows"};
    EXPECT_EQ(inputs, expected_inputs);
  }
  EXPECT_EQ(text("run.py"), kStablehloRunScript);
}

TEST_F(StablehloExportTest, LeavesNothingBehindWhereItFails) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "mine") << "kept";
  expect_error([&] { export_stablehlo(checkpoint("mamba2_hf"), folder_.string(), {}); },
               ErrorCode::kBadInput, "expected a new or an empty folder");
  EXPECT_EQ(text("mine"), "kept");
  fs::remove_all(folder_);
  StablehloExportOptions options;
  options.blocks = {1};
  expect_error([&] { export_stablehlo(checkpoint("mamba2_hf"), folder_.string(), options); },
               ErrorCode::kBadInput, "blocks: expected 2 to 65536 tokens, got 1");
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace adder::testing
