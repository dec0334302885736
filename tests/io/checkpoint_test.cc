#include "io/checkpoint.h"

#include <cstring>

#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

// A safetensors image with these U8 tensors of one element each.
std::string weights(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                          i > 0 ? "," : "", names[i], i, i + 1);
  }
  return safetensors(header + "}", std::string(names.size(), 'x'));
}

std::string torch_weights(std::string_view name) {
  PickleWriter w;
  w.op("}(").text(name).tensor("ByteStorage", "0", 1, 0, {1}, {1}).op("u.");
  return make_zip({{.name = "m/data.pkl", .data = w.bytes}, {.name = "m/data/0", .data = "x"}});
}

const char* const kConfig = R"({"d_model": 8, "n_layer": 1, "ssm_cfg": {}})";

TEST(Checkpoint, OpensADirectory) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("model.safetensors", weights({"backbone.embedding.weight", "b"}));
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(checkpoint.path(), dir.path());
  EXPECT_EQ(checkpoint.directory(), dir.path());
  EXPECT_EQ(checkpoint.config().get_int("d_model"), 8);
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.total_bytes(), 2u);
  ASSERT_NE(checkpoint.find("b"), nullptr);
  EXPECT_EQ(checkpoint.find("b")->file, dir.path("model.safetensors"));
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  EXPECT_EQ(std::to_integer<char>(*checkpoint.find("b")->data), 'x');
}

TEST(Checkpoint, DataOutlivesMovesAndFiles) {
  Checkpoint kept = [] {
    const TempDir dir;
    dir.write("config.json", kConfig);
    return Checkpoint::open(dir.write("any.safetensors", weights({"a"})));
  }();
  const Checkpoint moved = std::move(kept);
  EXPECT_EQ(std::to_integer<char>(*moved.find("a")->data), 'x');
}

TEST(Checkpoint, OpensSingleFilesByTheirContent) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  for (const char* name : {"a.safetensors", "a.bin", "a.pt", "a"}) {
    const Checkpoint plain = Checkpoint::open(dir.write(name, weights({"w"})));
    EXPECT_EQ(plain.directory(), dir.path()) << name;
    EXPECT_NE(plain.find("w"), nullptr) << name;
    EXPECT_NE(Checkpoint::open(dir.write(name, torch_weights("t"))).find("t"), nullptr) << name;
  }
}

TEST(Checkpoint, ReadsASafetensorsFileWhoseLengthLooksLikeAnotherMagic) {
  // A header of 0x4b50 bytes begins with "PK", one of 0x80 with the first byte of a pickle.
  const TempDir dir;
  dir.write("config.json", kConfig);
  for (const size_t length : {size_t{0x4b50}, size_t{0x80}}) {
    std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.resize(length, ' ');
    EXPECT_NE(Checkpoint::open(dir.write("m.safetensors", safetensors(header, "x"))).find("w"),
              nullptr);
  }
}

TEST(Checkpoint, PrefersFilesInTheDocumentedOrder) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("params.json", R"({"dim": 8, "n_layers": 1})");
  dir.write("pytorch_model.bin", torch_weights("from.bin"));
  EXPECT_NE(Checkpoint::open(dir.path()).find("from.bin"), nullptr);
  dir.write("consolidated.safetensors", weights({"model.backbone.x"}));
  const Checkpoint consolidated = Checkpoint::open(dir.path());
  EXPECT_NE(consolidated.find("model.backbone.x"), nullptr);
  EXPECT_EQ(consolidated.config().get_int("dim"), 8);  // params.json goes with consolidated
  EXPECT_EQ(consolidated.dialect(), Dialect::kCodestral);
  dir.write("s1.safetensors", weights({"from.shard"}));
  dir.write("model.safetensors.index.json", R"({"weight_map":{"from.shard":"s1.safetensors"}})");
  const Checkpoint sharded = Checkpoint::open(dir.path());
  EXPECT_NE(sharded.find("from.shard"), nullptr);
  EXPECT_EQ(sharded.config().get_int("d_model"), 8);
  dir.write("model.safetensors", weights({"from.single"}));
  EXPECT_NE(Checkpoint::open(dir.path()).find("from.single"), nullptr);
}

TEST(Checkpoint, NamesWhatIsMissing) {
  const TempDir dir;
  expect_bad_input([&] { Checkpoint::open(dir.path("absent")); },
                   "absent: no such file or directory");
  expect_bad_input(
      [&] { Checkpoint::open(dir.path()); },
      "no weights found; looked for model.safetensors, model.safetensors.index.json, "
      "consolidated.safetensors, pytorch_model.bin, pytorch_model.bin.index.json and *.gguf");
  dir.write("model.safetensors", weights({"a"}));
  expect_bad_input(
      [&] { Checkpoint::open(dir.path()); },
      "no config found beside it; looked for config.json and params.json in " + dir.path());
  dir.write("config.json", "[1]");
  expect_bad_input([&] { Checkpoint::open(dir.path()); }, "config.json: expected a JSON object");
  dir.write("config.json", "{\"a\": }");
  expect_bad_input([&] { Checkpoint::open(dir.path()); }, "config.json:1:7: malformed JSON");
}

TEST(Checkpoint, ExplainsFilesThatAreNoCheckpoint) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  const std::string gguf = dir.write("a.gguf", "GGUF\3");
  expect_bad_input([&] { Checkpoint::open(gguf); }, "a.gguf: cut off at byte 4");
  expect_bad_input([&] { Checkpoint::open(dir.path()); }, "a.gguf: cut off at byte 4");
  dir.write("b.gguf", "GGUF\3");
  expect_bad_input([&] { Checkpoint::open(dir.path()); },
                   "expected one GGUF file, got 2; name one");
  const std::string pointer = dir.write(
      "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  expect_bad_input([&] { Checkpoint::open(dir.path()); }, "a Git LFS pointer, not the file itself");
  const std::string old = dir.write("old.bin", "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.");
  expect_error([&] { Checkpoint::open(old); }, ErrorCode::kUnsupported, "since PyTorch 1.6");
  expect_bad_input([&] { Checkpoint::open(dir.write("t.bin", "<!DOCTYPE html>")); },
                   "header length");
  expect_bad_input([&] { Checkpoint::open(dir.write("e.bin", "")); }, "e.bin: the file is empty");
}

TEST(Checkpoint, OpensShards) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("one.safetensors", weights({"a", "b"}));
  dir.write("two.safetensors", weights({"c"}));
  const std::string index = dir.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":3},"weight_map":{"a":"one.safetensors","c":"two.safetensors",)"
      R"("b":"one.safetensors"}})");
  for (const std::string& path : {dir.path(), index}) {
    const Checkpoint checkpoint = Checkpoint::open(path);
    EXPECT_EQ(checkpoint.tensors().size(), 3u);
    EXPECT_EQ(checkpoint.find("c")->file, dir.path("two.safetensors"));
  }
  std::filesystem::remove(dir.path("model.safetensors.index.json"));
  dir.write("one.bin", torch_weights("t"));
  dir.write("pytorch_model.bin.index.json", R"({"weight_map":{"t":"one.bin"}})");
  EXPECT_NE(Checkpoint::open(dir.path()).find("t"), nullptr);
}

TEST(Checkpoint, RefusesBadShardIndexes) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("one.safetensors", weights({"a"}));
  dir.write("same.safetensors", weights({"a", "b"}));
  const auto refuse = [&](std::string_view index, std::string_view part) {
    dir.write("model.safetensors.index.json", index);
    expect_bad_input([&] { Checkpoint::open(dir.path()); }, part);
  };
  refuse("{}", "field 'weight_map' is missing");
  refuse(R"({"weight_map":{}})", "field 'weight_map' is empty");
  refuse(R"({"weight_map":{"a":null}})", "tensor 'a': expected a file name, got null");
  refuse(R"({"weight_map":{"a":7}})", "field 'weight_map.a': expected a string, got 7");
  refuse(
      R"({"weight_map":{"z":"one.safetensors"}})",
      "one.safetensors: tensor 'z', which " + dir.path("model.safetensors.index.json") + " places");
  refuse(R"({"weight_map":{"a":"one.safetensors","b":"same.safetensors"}})",
         "same.safetensors: tensor 'a' was found in " + dir.path("one.safetensors") + " already");
  for (const char* name :
       {"../one.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\\\b", "a\\u0000b", "a b"}) {
    refuse(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name),
           "tensor 'a': expected a file name in the same directory, got '");
  }
  dir.write("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  expect_error([&] { Checkpoint::open(dir.path()); }, ErrorCode::kIo,
               "gone.safetensors: cannot open");
}

TEST(Checkpoint, DetectsTheDialect) {
  const auto detect = [](const std::string& tensor, const std::string& config) {
    const std::string image = weights({"lm_head.weight", tensor});
    return Checkpoint::from_memory(as_bytes(image), config, "demo").dialect();
  };
  EXPECT_EQ(detect("backbone.embedding.weight", kConfig), Dialect::kStateSpaces);
  EXPECT_EQ(detect("backbone.embeddings.weight", R"({"model_type":"mamba","hidden_size":8})"),
            Dialect::kHuggingFace);
  // Carries the keys of state-spaces as well as its own.
  EXPECT_EQ(
      detect("backbone.embeddings.weight",
             R"({"model_type":"mamba","hidden_size":8,"d_model":8,"n_layer":1,"ssm_cfg":{}})"),
      Dialect::kHuggingFace);
  EXPECT_EQ(detect("backbone.embedding.weight",
                   R"({"model_type":"mamba","d_model":8,"d_inner":16,"d_state":4,"dt_rank":1})"),
            Dialect::kOldPort);
  // model_type mamba, although it is Mamba-2.
  EXPECT_EQ(
      detect("model.backbone.embedding.weight", R"({"model_type":"mamba","dim":8,"n_layers":1})"),
      Dialect::kCodestral);
  EXPECT_EQ(detect("x", R"({"dim":8,"n_layers":1})"), Dialect::kCodestral);
  EXPECT_EQ(detect("model.layers.0.x", R"({"model_type":"jamba"})"), Dialect::kHuggingFace);
}

TEST(Checkpoint, ReadsFromMemory) {
  const std::string image = weights({"a"});
  const Checkpoint checkpoint = Checkpoint::from_memory(as_bytes(image), kConfig, "demo");
  EXPECT_EQ(checkpoint.path(), "demo");
  EXPECT_EQ(checkpoint.directory(), "");
  EXPECT_EQ(checkpoint.find("a")->file, "demo");
  expect_bad_input([&] { Checkpoint::from_memory(as_bytes("x"), kConfig, "demo"); },
                   "demo: expected");
  expect_bad_input([&] { Checkpoint::from_memory(as_bytes(image), "{", "demo"); },
                   "demo (config):1:2");
}

TEST(Checkpoint, CountsTiedDataOnce) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  PickleWriter w;
  w.op("}(").text("a").tensor("FloatStorage", "0", 2, 0, {2}, {1}).op(std::string_view("q\1", 2));
  w.text("b").op(std::string_view("h\1", 2)).op("u.");
  dir.write("pytorch_model.bin", make_zip({{.name = "m/data.pkl", .data = w.bytes},
                                           {.name = "m/data/0", .data = "12345678"}}));
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.total_bytes(), 8u);
}

// Written by ggml's own package (tools/make_gguf_golden.py), with a key of every type.
TEST(Checkpoint, ReadsGgufFromAFolder) {
  const std::string folder = ADDER_SOURCE_DIR "/tests/golden/gguf_mamba1";
  const Checkpoint checkpoint = Checkpoint::open(folder);
  EXPECT_EQ(checkpoint.dialect(), Dialect::kGguf);
  EXPECT_EQ(checkpoint.directory(), folder);
  const GgufMetadata& m = *checkpoint.gguf();
  EXPECT_EQ(m.get_int("test.u8"), 200);
  EXPECT_EQ(m.get_int("test.i8"), -3);
  EXPECT_EQ(m.get_int("test.u16"), 60000);
  EXPECT_EQ(m.get_int("test.i16"), -300);
  EXPECT_EQ(m.get_int("test.u32"), 4000000000);
  EXPECT_EQ(m.get_int("test.i32"), -70000);
  EXPECT_EQ(m.get_int("test.u64"), int64_t{1} << 40);
  EXPECT_EQ(m.get_int("test.i64"), -(int64_t{1} << 40));
  EXPECT_EQ(m.get_number("test.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(m.get_number("test.f64"), 0.1);
  EXPECT_EQ(m.get_bool("test.bool"), true);
  EXPECT_EQ(m.get_string("test.string"), "na\xc3\xafve");
  EXPECT_EQ(m.get_floats("test.floats"), (std::vector<float>{0.5f, -1.5f}));
  EXPECT_EQ(m.get_ints("test.ints"), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(m.get_strings("test.strings"), (std::vector<std::string_view>{"a", "",
                                                                          "\xe2\x96\x81"
                                                                          "b"}));
  EXPECT_EQ(checkpoint.config().get_int("mamba.embedding_length"), 33);
  EXPECT_EQ(checkpoint.config().get_number("test.f64"), 0.1);
  EXPECT_FALSE(checkpoint.config().has("test.ints"));
  EXPECT_EQ(checkpoint.find("blk.0.ssm_conv1d.weight")->shape, (std::vector<int64_t>{66, 1, 4}));
  EXPECT_EQ(checkpoint.find("blk.0.ssm_a")->shape, (std::vector<int64_t>{66, 16}));
  const Checkpoint two = Checkpoint::open(ADDER_SOURCE_DIR "/tests/golden/gguf_mamba2/model.gguf");
  EXPECT_EQ(two.find("blk.0.ssm_a")->shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(two.find("blk.0.ssm_norm.weight")->shape, (std::vector<int64_t>{64}));
}

}  // namespace
}  // namespace adder
