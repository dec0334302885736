#include "io/safetensors.h"

#include <cstring>

#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

const std::string kValid = safetensors(
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2,1],"data_offsets":[8,12]},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[12,20]},)"
    R"("none":{"dtype":"BF16","shape":[0,4],"data_offsets":[12,12]}}  )",
    std::string("\0\0\x80\x3f\0\0\0\x40\0\x3c\0\x40\x07\0\0\0\0\0\0\0", 20));

TensorFile read_header(std::string_view image) {
  return read_safetensors(as_bytes(image), "m.safetensors");
}

// One tensor "x" whose entry is given; `data` bytes follow.
TensorFile read_entry(std::string_view entry, size_t data) {
  return read_header(safetensors("{\"x\":" + std::string(entry) + "}", std::string(data, '\0')));
}

TEST(Safetensors, ReadsShapesTypesAndDataAtEveryAlignment) {
  for (size_t remainder = 0; remainder < 8; ++remainder) {
    const PlacedCopy image(kValid, remainder);
    const TensorFile file = read_safetensors(image.bytes(), "m.safetensors");
    ASSERT_EQ(file.tensors.size(), 4u);
    const StoredTensor& a = find(file, "a");
    EXPECT_EQ(a.dtype, DType::kF32);
    EXPECT_EQ(a.shape, (std::vector<int64_t>{2}));
    EXPECT_EQ(a.file, "m.safetensors");
    for (const StoredTensor& tensor : file.tensors) {
      EXPECT_TRUE(tensor.is_contiguous());
      if (tensor.size() > 0) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % dtype_size(tensor.dtype), 0u)
            << tensor.name << " at remainder " << remainder;
      }
    }
    EXPECT_EQ(reinterpret_cast<const float*>(a.data)[0], 1.0f);
    EXPECT_EQ(reinterpret_cast<const float*>(a.data)[1], 2.0f);
    EXPECT_EQ(reinterpret_cast<const uint16_t*>(find(file, "b").data)[1], 0x4000);
    EXPECT_EQ(find(file, "b").stride, (std::vector<int64_t>{1, 1}));
    EXPECT_EQ(*reinterpret_cast<const int64_t*>(find(file, "scalar").data), 7);
    EXPECT_EQ(find(file, "scalar").size(), 1);
    EXPECT_EQ(find(file, "none").size(), 0);
  }
}

TEST(Safetensors, DoesNotCopyWhatIsAligned) {
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";
  ASSERT_EQ(header.size() % 8, 0u);  // the data then begins on a multiple of 8
  const PlacedCopy image(safetensors(header, std::string(4, '\0')), 0);
  const TensorFile file = read_safetensors(image.bytes(), "x");
  EXPECT_TRUE(file.owners.empty());
  EXPECT_EQ(file.tensors[0].data, image.bytes().data() + 8 + header.size());
}

TEST(Safetensors, KnowsEveryDType) {
  const std::pair<const char*, size_t> kTypes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},
                                                   {"I8", 1},  {"U8", 1},  {"I16", 2},  {"I32", 4},
                                                   {"I64", 8}, {"BOOL", 1}};
  for (const auto& [name, bytes] : kTypes) {
    const std::string entry =
        fmt::format(R"({{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}})", name, 3 * bytes);
    const TensorFile file = read_entry(entry, 3 * bytes);
    EXPECT_EQ(dtype_name(file.tensors[0].dtype), name);
    EXPECT_EQ(dtype_size(file.tensors[0].dtype), bytes);
  }
  for (const char* name : {"F8_E4M3", "U16", "C64", "f32", ""}) {
    const std::string entry =
        fmt::format(R"({{"dtype":"{}","shape":[1],"data_offsets":[0,1]}})", name);
    expect_error([&] { read_entry(entry, 1); }, ErrorCode::kUnsupported,
                 "tensor 'x': expected dtype");
  }
}

TEST(Safetensors, RefusesBadHeaderLengths) {
  expect_bad_input([] { read_header(""); }, "expected a safetensors file, got 0 bytes");
  expect_bad_input([] { read_header("1234567"); }, "got 7 bytes");
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::string image;
    put(image, length, 8);
    image += "{}";
    expect_bad_input([&] { read_header(image); }, "header length: expected at most 2");
  }
  EXPECT_TRUE(read_header(safetensors("{}", "")).tensors.empty());
  expect_bad_input([] { read_header(safetensors("", "")); }, "malformed JSON");
  expect_bad_input([] { read_header(safetensors("[]", "")); }, "expected a JSON object");
  expect_bad_input([] { read_header(safetensors("{}", "x")); }, "expected 0 bytes of data, got 1");
}

TEST(Safetensors, RefusesEveryTruncation) {
  for (size_t size = 0; size < kValid.size(); ++size) {
    EXPECT_THROW(read_header(std::string_view(kValid).substr(0, size)), Error) << size;
  }
  EXPECT_THROW(read_header(kValid + "x"), Error);
}

TEST(Safetensors, SurvivesEveryChangedByte) {
  for (size_t i = 0; i < kValid.size(); ++i) {
    for (const int delta : {1, 0x20, 0x80, 0xff}) {
      std::string image = kValid;
      image[i] = static_cast<char>(image[i] ^ delta);
      expect_contained([&] { read_header(image); });
    }
  }
}

TEST(Safetensors, RefusesBadEntries) {
  const auto refuse = [](std::string_view entry, std::string_view part) {
    expect_bad_input([&] { read_entry(entry, 8); }, part);
  };
  refuse("null", "tensor 'x': expected an object, got null");
  refuse("3", "field 'x': expected an object, got 3");
  refuse(R"({"shape":[2],"data_offsets":[0,8]})", "'dtype' is missing");
  refuse(R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})", "expected a string, got 32");
  refuse(R"({"dtype":"F32","data_offsets":[0,8]})", "'shape' is missing");
  refuse(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", "expected an array, got 2");
  refuse(R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})", "expected an integer");
  refuse(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "'shape' holds -2");
  refuse(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})", "at most 8 dim");
  refuse(R"({"dtype":"F32","shape":[2]})", "expected 'data_offsets' [begin, end]");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "expected 'data_offsets'");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", "expected 'data_offsets'");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[-1,8]})", "leave the 8 bytes of data");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "leave the 8 bytes of data");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})", "leave the 8 bytes of data");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,1e30]})", "expected an integer");
  refuse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
         "expected 8 bytes for its shape, got 4");
  refuse(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})",
         "expected 4 bytes for its shape, got 8");
}

TEST(Safetensors, RefusesProductsThatOverflow) {
  for (const char* shape :
       {"[4611686018427387904]", "[4294967296,4294967296]", "[9223372036854775807,2]",
        "[65536,65536,65536,65536]", "[0,9223372036854775807,9223372036854775807]"}) {
    const std::string entry =
        fmt::format(R"({{"dtype":"F32","shape":{},"data_offsets":[0,0]}})", shape);
    expect_bad_input([&] { read_entry(entry, 0); }, "product of 'shape' overflows");
  }
}

TEST(Safetensors, RefusesOverlapAndGap) {
  const auto two = [](const char* first, const char* second, size_t data) {
    return safetensors(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                                   R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                                   first, second),
                       std::string(data, '\0'));
  };
  EXPECT_EQ(read_header(two("[4,8]", "[0,4]", 8)).tensors.size(), 2u);
  expect_bad_input([&] { read_header(two("[0,4]", "[3,7]", 7)); },
                   "'b': expected its data to begin at 4");
  expect_bad_input([&] { read_header(two("[0,4]", "[0,4]", 4)); }, "(overlap)");
  expect_bad_input([&] { read_header(two("[0,4]", "[5,9]", 9)); }, "got 5 (gap)");
  expect_bad_input([&] { read_header(two("[1,5]", "[5,9]", 9)); },
                   "'a': expected its data to begin at 0");
  expect_bad_input([&] { read_header(two("[0,4]", "[4,8]", 9)); },
                   "expected 8 bytes of data, got 9");
}

TEST(Safetensors, RefusesBadNames) {
  const auto named = [](std::string_view name) {
    return safetensors(
        "{\"" + std::string(name) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        "x");
  };
  EXPECT_EQ(read_header(named("a.b-c_d/0")).tensors[0].name, "a.b-c_d/0");
  for (const char* name : {"", "a b", "a\\u0000b", "a\\n", "\\u00e9", "\\u007f"}) {
    expect_bad_input([&] { read_header(named(name)); }, "a name that no format writes");
  }
  expect_bad_input([&] { read_header(named(std::string(513, 'a'))); },
                   "a name that no format writes");
  expect_bad_input(
      [] {
        read_header(safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                "xy"));
      },
      "key 'a' appears twice");
}

TEST(Safetensors, MapsFiles) {
  const TempDir dir;
  const TensorFile file = open_safetensors(dir.write("m.safetensors", kValid));
  EXPECT_EQ(file.tensors.size(), 4u);
  EXPECT_FALSE(file.owners.empty());
  EXPECT_EQ(find(file, "a").file, dir.path("m.safetensors"));
}

}  // namespace
}  // namespace adder
