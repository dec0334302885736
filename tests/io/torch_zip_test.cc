#include "io/torch_zip.h"

#include <algorithm>
#include <cstring>

#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;
using namespace std::string_view_literals;

TensorFile read_zip(std::string_view image) {
  return read_torch_zip(as_bytes(image), "m.bin");
}

std::string floats(std::initializer_list<float> values) {
  std::string out;
  for (const float v : values) out.append(reinterpret_cast<const char*>(&v), sizeof v);
  return out;
}

// A torch file of this pickle with storage "0" = 0, 1, ..., 5 and storage "1" = 7.
std::vector<ZipEntry> entries(std::string pickle) {
  return {{.name = "m/data.pkl", .data = std::move(pickle), .sizes_follow = true},
          {.name = "m/byteorder", .data = "little"},
          {.name = "m/data/0", .data = floats({0, 1, 2, 3, 4, 5}), .padding = 31},
          {.name = "m/data/1", .data = floats({7})},
          {.name = "m/version", .data = "3\n"}};
}

std::string simple_pickle() {
  PickleWriter w;
  w.op("}(").text("w").tensor("FloatStorage", "0", 6, 0, {2, 3}, {3, 1}).op("u.");
  return w.bytes;
}

float element(const StoredTensor& tensor, std::vector<int64_t> index) {
  int64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) at += index[i] * tensor.stride[i];
  return reinterpret_cast<const float*>(tensor.data)[at];
}

TEST(TorchZip, HonoursOffsetsAndStridesAtEveryAlignment) {
  PickleWriter w;
  w.op("}(").text("plain").tensor("FloatStorage", "0", 6, 0, {2, 3}, {3, 1});
  w.text("turned").tensor("FloatStorage", "0", 6, 0, {3, 2}, {1, 3});
  w.text("tail").tensor("FloatStorage", "0", 6, 4, {2}, {1});
  w.text("scalar").tensor("FloatStorage", "1", 1, 0, {}, {});
  w.text("empty").tensor("FloatStorage", "1", 1, 1, {0, 3}, {3, 1}).op("u.");
  const std::string image = make_zip(entries(w.bytes));
  for (size_t remainder = 0; remainder < 8; ++remainder) {
    const PlacedCopy copy(image, remainder);
    const TensorFile file = read_torch_zip(copy.bytes(), "m.bin");
    ASSERT_EQ(file.tensors.size(), 5u);
    EXPECT_EQ(element(find(file, "plain"), {1, 2}), 5.0f);
    EXPECT_EQ(element(find(file, "turned"), {2, 1}), 5.0f);
    EXPECT_EQ(element(find(file, "turned"), {0, 1}), 3.0f);
    EXPECT_FALSE(find(file, "turned").is_contiguous());
    EXPECT_EQ(element(find(file, "tail"), {1}), 5.0f);
    EXPECT_EQ(element(find(file, "scalar"), {}), 7.0f);
    EXPECT_EQ(find(file, "empty").size(), 0);
    EXPECT_EQ(find(file, "plain").file, "m.bin");
    for (const StoredTensor& tensor : file.tensors) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % sizeof(float), 0u);
    }
    // Views of one storage still share it, copied or not.
    EXPECT_EQ(find(file, "tail").data, find(file, "plain").data + 4 * sizeof(float));
    EXPECT_LE(file.owners.size(), 2u);
  }
}

TEST(TorchZip, TiedTensorsShareTheirData) {
  PickleWriter w;
  w.op("}(")
      .text("a")
      .tensor("FloatStorage", "0", 6, 0, {6}, {1})
      .op("q\1"sv)
      .text("b")
      .op("h\1"sv);
  const TensorFile file = read_zip(make_zip(entries(w.op("u.").bytes)));
  EXPECT_EQ(find(file, "a").data, find(file, "b").data);
}

TEST(TorchZip, FindsANestedStateDict) {
  for (const char* key : {"state_dict", "model_state_dict", "model"}) {
    PickleWriter w;
    w.op("}(").text("epoch").integer(3).text(key).op("}(").text("w");
    w.tensor("FloatStorage", "0", 6, 0, {6}, {1}).op("u").text("optimizer").op("}u.");
    EXPECT_EQ(read_zip(make_zip(entries(w.bytes))).tensors[0].name, "w") << key;
  }
  PickleWriter two;
  two.op("}(").text("model").op("}").text("state_dict").op("}u.");
  expect_bad_input([&] { read_zip(make_zip(entries(two.bytes))); },
                   "expected one state dict, got 'model' and 'state_dict'");
}

TEST(TorchZip, LeavesOutPlainDataOnly) {
  PickleWriter w;
  w.op("}(").text("w").tensor("FloatStorage", "0", 6, 0, {6}, {1});
  w.text("step").integer(3).text("config").op("](").text("x").op("Neu.");
  EXPECT_EQ(read_zip(make_zip(entries(w.bytes))).tensors.size(), 1u);
  PickleWriter inside;
  inside.op("}(").text("w").tensor("FloatStorage", "0", 6, 0, {6}, {1});
  inside.text("extra").op("](").tensor("FloatStorage", "1", 1, 0, {1}, {1}).op("eu.");
  expect_bad_input([&] { read_zip(make_zip(entries(inside.bytes))); },
                   "m.bin: entry 'extra': expected a tensor, got tensors inside another value");
}

TEST(TorchZip, RefusesBadDicts) {
  const auto refuse = [](std::string_view opcodes, std::string_view part) {
    expect_bad_input([&] { read_zip(make_zip(entries("\x80\x02" + std::string(opcodes)))); }, part);
  };
  refuse("K\1.", "m.bin: expected a dict of tensors");
  refuse("}.", "m.bin: holds no tensors");
  refuse("cos\nsystem\n.", "m.bin (data.pkl): byte 2: refused: pickle asks for 'os.system'");
  const auto with_key = [](std::string_view key_opcodes) {
    PickleWriter w;
    w.op("}(").op(key_opcodes).tensor("FloatStorage", "0", 6, 0, {6}, {1}).op("u.");
    return w.bytes.substr(2);
  };
  refuse(with_key("K\5"), "a tensor whose key is no string");
  refuse(with_key("X\0\0\0\0"sv), "a name that no format writes");
  refuse(with_key("X\3\0\0\0a\nb"sv), "tensor 'a\\x0ab': a name that no format writes");
  PickleWriter twice;
  for (int i = 0; i < 2; ++i) {
    twice.op(i == 0 ? "}(" : "").text("w").tensor("FloatStorage", "0", 6, 0, {6}, {1});
  }
  refuse(twice.op("u.").bytes.substr(2), "tensor 'w': appears twice");
}

TEST(TorchZip, RefusesStoragesThatDoNotMatch) {
  const auto image = [](std::string_view type, std::string_view key, int64_t size) {
    PickleWriter w;
    w.op("}(").text("w").tensor(type, key, size, 0, {1}, {1}).op("u.");
    return make_zip(entries(w.bytes));
  };
  EXPECT_EQ(read_zip(image("FloatStorage", "0", 6)).tensors.size(), 1u);
  expect_bad_input([&] { read_zip(image("FloatStorage", "9", 6)); },
                   "its storage 'm/data/9' is missing");
  expect_bad_input([&] { read_zip(image("FloatStorage", "../version", 6)); }, "is missing");
  expect_bad_input(
      [&] { read_zip(image("FloatStorage", "0", 7)); },
      "tensor 'w': expected 7 elements of F32 in its storage 'm/data/0', got 24 bytes");
  expect_bad_input([&] { read_zip(image("FloatStorage", "0", 5)); }, "expected 5 elements of F32");
  expect_bad_input([&] { read_zip(image("DoubleStorage", "0", 6)); }, "expected 6 elements of F64");
  expect_bad_input([&] { read_zip(image("FloatStorage", "0", INT64_MAX)); }, "got 24 bytes");
}

TEST(TorchZip, RefusesOtherFiles) {
  const char* const kOld = "expected the zip that torch.save writes since PyTorch 1.6; convert";
  expect_error([] { read_zip("\x80\x02\x8a\nl\xfc\x9c"sv); }, ErrorCode::kUnsupported, kOld);
  expect_error([] { read_zip(""); }, ErrorCode::kUnsupported, kOld);
  expect_bad_input([] { read_zip(make_zip({{.name = "word/document.xml", .data = "x"}})); },
                   "m.bin: a zip without data.pkl, so not written by torch.save");
  expect_bad_input(
      [] {
        read_zip(
            make_zip({{.name = "a/data.pkl", .data = "x"}, {.name = "b/data.pkl", .data = "x"}}));
      },
      "expected one data.pkl, got two");
  auto big = entries(simple_pickle());
  big[1].data = "big";
  expect_error([&] { read_zip(make_zip(big)); }, ErrorCode::kUnsupported,
               "expected byteorder 'little', got 'big'");
  auto damaged = entries(simple_pickle());
  damaged[0].crc_xor = 1;
  expect_bad_input([&] { read_zip(make_zip(damaged)); }, "m.bin: data.pkl: expected CRC-32");
  auto older = entries(simple_pickle());  // before PyTorch 2.0 there is no byte order entry
  older.erase(older.begin() + 1);
  EXPECT_EQ(read_zip(make_zip(older)).tensors.size(), 1u);
}

TEST(TorchZip, SurvivesTruncationAndEveryChangedByte) {
  const std::string image = make_zip(entries(simple_pickle()));
  for (size_t size = 0; size < image.size(); ++size) {
    EXPECT_THROW(read_zip(std::string_view(image).substr(0, size)), Error) << size;
  }
  for (size_t i = 0; i < image.size(); ++i) {
    for (const int delta : {1, 0x80, 0xff}) {
      std::string copy = image;
      copy[i] = static_cast<char>(copy[i] ^ delta);
      expect_contained([&] { read_zip(copy); });
    }
  }
}

TEST(TorchZip, MapsFiles) {
  const TempDir dir;
  const TensorFile file = open_torch_zip(dir.write("m.bin", make_zip(entries(simple_pickle()))));
  EXPECT_EQ(element(find(file, "w"), {1, 0}), 3.0f);
  EXPECT_EQ(find(file, "w").file, dir.path("m.bin"));
}

}  // namespace
}  // namespace adder
