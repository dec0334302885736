// GGUF: what the writer writes is read back, and every field spoiled is refused by name.
#include "io/gguf.h"

#include <cstring>
#include <functional>

#include "io/gguf_writer.h"
#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;

constexpr uint32_t kF32 = 0, kQ8_0 = 8;

std::string text(std::string_view s) {
  std::string out;
  put(out, s.size(), 8);
  return out.append(s);
}

std::string number(uint64_t value, size_t bytes) {
  std::string out;
  put(out, value, bytes);
  return out;
}

std::string key(std::string_view name, GgufType type, std::string_view value) {
  return text(name) + number(static_cast<uint32_t>(type), 4) + std::string(value);
}

std::string info(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                 uint64_t offset) {
  std::string out = text(name) + number(ne.size(), 4);
  for (const uint64_t n : ne) put(out, n, 8);
  return out + number(type, 4) + number(offset, 8);
}

// A file of these keys and infos, padded, with `data` bytes behind.
std::string gguf(const std::vector<std::string>& keys, const std::vector<std::string>& infos,
                 size_t data, uint32_t version = 3) {
  std::string out = "GGUF" + number(version, 4) + number(infos.size(), 8) + number(keys.size(), 8);
  for (const std::string& k : keys) out += k;
  for (const std::string& i : infos) out += i;
  out.append((32 - out.size() % 32) % 32, '\0');
  return out.append(data, '\1');
}

GgufFile read_image(std::string_view image) {
  return read_gguf(as_bytes(image), "m.gguf");
}

void expect_refused(const std::string& image, std::string_view part) {
  expect_bad_input([&] { read_image(image); }, part);
}

std::string written(const std::function<void(GgufWriter&)>& fill) {
  std::string out;
  GgufWriter writer([&](std::span<const std::byte> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  fill(writer);
  writer.finish();
  return out;
}

TEST(Gguf, ReadsWhatTheWriterWrites) {
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const std::string blocks(2 * 34, '\5');
  const std::string image = written([&](GgufWriter& w) {
    w.add_string("general.architecture", "mamba");
    w.add_u32("mamba.block_count", 24);
    w.add_f32("mamba.eps", 1e-5f);
    w.add_bool("mamba.flag", true);
    const std::vector<std::string_view> words = {"a", "", "bcd"};
    w.add_strings("tokens", words);
    w.add_floats("scores", std::vector<float>{0.5f, -1});
    w.add_ints("types", std::vector<int32_t>{1, -3});
    w.declare("one", DType::kF32, {2, 3});
    w.declare("two", DType::kQ8_0, {2, 32});
    const auto bytes = std::as_bytes(std::span(weights));
    w.write(bytes.first(12));  // rows may come one by one
    w.write(bytes.subspan(12));
    w.write(as_bytes(blocks));
  });
  EXPECT_EQ(image.size() % 32, 0u);
  for (size_t remainder = 0; remainder < 4; ++remainder) {
    const PlacedCopy copy(image, remainder);
    const GgufFile file = read_gguf(copy.bytes(), "m.gguf");
    const GgufMetadata& m = file.metadata;
    EXPECT_EQ(m.get_string("general.architecture"), "mamba");
    EXPECT_EQ(m.get_int("mamba.block_count"), 24);
    EXPECT_EQ(m.get_number("mamba.block_count"), 24.0);
    EXPECT_EQ(m.get_number("mamba.eps"), static_cast<double>(1e-5f));
    EXPECT_EQ(m.get_bool("mamba.flag"), true);
    EXPECT_EQ(m.get_int("absent"), std::nullopt);
    EXPECT_EQ(m.get_strings("tokens"), (std::vector<std::string_view>{"a", "", "bcd"}));
    EXPECT_EQ(m.get_floats("scores"), (std::vector<float>{0.5f, -1}));
    EXPECT_EQ(m.get_ints("types"), (std::vector<int32_t>{1, -3}));
    ASSERT_EQ(file.tensors.tensors.size(), 2u);
    const StoredTensor& one = file.tensors.tensors[0];
    EXPECT_EQ(one.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(one.dtype, DType::kF32);
    EXPECT_EQ(std::memcmp(one.data, weights.data(), 24), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(one.data) % 4, 0u);
    const StoredTensor& two = file.tensors.tensors[1];
    EXPECT_EQ(two.shape, (std::vector<int64_t>{2, 32}));
    EXPECT_EQ(two.dtype, DType::kQ8_0);
    EXPECT_EQ(std::memcmp(two.data, blocks.data(), blocks.size()), 0);
  }
}

TEST(Gguf, CopiesValuesOfEveryTypeFromOneFileToAnother) {
  const std::vector<std::string> keys = {
      key("u8", GgufType::kU8, "\x80"),
      key("i8", GgufType::kI8, "\x80"),
      key("u16", GgufType::kU16, number(65535, 2)),
      key("i16", GgufType::kI16, number(65535, 2)),
      key("u32", GgufType::kU32, number(4294967295, 4)),
      key("i32", GgufType::kI32, number(4294967295, 4)),
      key("u64", GgufType::kU64, number(1ull << 62, 8)),
      key("i64", GgufType::kI64, number(~0ull, 8)),
      key("f64", GgufType::kF64, number(0x4000000000000000, 8)),
      key("list", GgufType::kArray, number(8, 4) + number(2, 8) + text("x") + text("yy"))};
  const std::string source = gguf(keys, {}, 0);
  const GgufFile first = read_image(source);
  const std::string image = written([&](GgufWriter& w) {
    for (const auto& [name, value] : first.metadata.values()) w.add(name, value);
  });
  const GgufFile file = read_image(image);
  const GgufMetadata& m = file.metadata;
  EXPECT_EQ(m.get_int("u8"), 128);
  EXPECT_EQ(m.get_int("i8"), -128);
  EXPECT_EQ(m.get_int("u16"), 65535);
  EXPECT_EQ(m.get_int("i16"), -1);
  EXPECT_EQ(m.get_int("u32"), 4294967295);
  EXPECT_EQ(m.get_int("i32"), -1);
  EXPECT_EQ(m.get_int("u64"), int64_t{1} << 62);
  EXPECT_EQ(m.get_int("i64"), -1);
  EXPECT_EQ(m.get_number("f64"), 2.0);
  EXPECT_EQ(m.get_strings("list"), (std::vector<std::string_view>{"x", "yy"}));
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  expect_refused("GGU", "not a GGUF file");
  expect_refused(std::string("GGML").append(60, '\0'), "not a GGUF file");
  expect_refused("GGUF", "cut off at byte 4");
  for (const uint32_t version : {0u, 1u, 4u}) {
    expect_error([&] { read_image(gguf({}, {}, 0, version)); }, ErrorCode::kUnsupported,
                 fmt::format("expected GGUF version 2 or 3, got {}", version));
  }
  expect_error([&] { read_image(gguf({}, {}, 0, 0x03000000)); }, ErrorCode::kUnsupported,
               "big-endian");
  EXPECT_TRUE(read_image(gguf({}, {}, 0, 2)).tensors.tensors.empty());
  expect_error([&] { read_image(gguf({key("split.count", GgufType::kU16, number(3, 2))}, {}, 0)); },
               ErrorCode::kUnsupported, "one of 3 parts");
}

TEST(Gguf, RefusesMetadataThatLies) {
  const auto one = [](std::string_view k) { return gguf({std::string(k)}, {}, 0); };
  expect_refused("GGUF" + number(3, 4) + number(0, 8) + number(1ull << 60, 8),
                 "at most 65536 metadata keys, got 1152921504606846976");
  expect_refused("GGUF" + number(3, 4) + number(1ull << 60, 8) + number(0, 8),
                 "at most 1048576 tensors");
  expect_refused(one(number(1ull << 62, 8)), "expected a key of 1 to 65535 bytes");
  expect_refused(one(key("", GgufType::kU8, "x")), "expected a key of 1 to 65535 bytes, got 0");
  expect_refused(one(text("k") + number(13, 4)), "key 'k': expected a type from 0 to 12, got 13");
  expect_refused(one(key("k", GgufType::kString, number(1ull << 63, 8))), "cut off");
  expect_refused(one(key("k", GgufType::kArray, number(4, 4) + number(1ull << 62, 8))),
                 "key 'k': expected at most");
  expect_refused(one(key("k", GgufType::kArray, number(8, 4) + number(1ull << 61, 8))),
                 "key 'k': expected at most");
  expect_refused(one(key("k", GgufType::kBool, "\2")), "expected 0 or 1 for a bool, got 2");
  expect_error([&] { read_image(one(key("k", GgufType::kArray, number(9, 4) + number(0, 8)))); },
               ErrorCode::kUnsupported, "nested arrays");
  const std::string k = key("k", GgufType::kU8, "x");
  expect_refused(gguf({k, k}, {}, 0), "key 'k': the key occurs twice");
  for (const uint64_t alignment : {0u, 3u, 48u}) {
    expect_refused(
        one(key("general.alignment", GgufType::kU32, number(alignment, 4))),
        fmt::format("'general.alignment': expected a power of two up to 2^30, got {}", alignment));
  }
}

TEST(Gguf, NamesTheTypeThatAGetterExpected) {
  const std::string image =
      gguf({key("n", GgufType::kU32, number(7, 4)), key("s", GgufType::kString, text("x")),
            key("a", GgufType::kArray, number(6, 4) + number(0, 8)),
            key("big", GgufType::kU64, number(~0ull, 8)),
            key("wide", GgufType::kArray, number(4, 4) + number(1, 8) + number(1u << 31, 4))},
           {}, 0);
  const GgufFile file = read_image(image);
  const GgufMetadata& m = file.metadata;
  expect_bad_input([&] { m.get_string("n"); }, "m.gguf: key 'n': expected a string, got u32");
  expect_bad_input([&] { m.get_bool("n"); }, "expected a bool, got u32");
  expect_bad_input([&] { m.get_int("s"); }, "expected a whole number, got string");
  expect_bad_input([&] { m.get_number("a"); }, "expected a number, got an array of f32");
  expect_bad_input([&] { m.get_strings("s"); }, "expected an array of string, got string");
  expect_bad_input([&] { m.get_strings("a"); }, "expected an array of string, got an array of f32");
  expect_bad_input([&] { m.get_int("big"); }, "expected a number of 63 bits");
  expect_bad_input([&] { m.get_ints("wide"); }, "element 0: expected a number of 32 bits");
}

TEST(Gguf, RefusesTensorsThatLie) {
  const auto one = [](const std::string& i, size_t data = 64) { return gguf({}, {i}, data); };
  EXPECT_EQ(read_image(one(info("x", {8, 2}, kF32, 0))).tensors.tensors[0].shape,
            (std::vector<int64_t>{2, 8}));
  expect_refused(one(info("", {8}, kF32, 0)), "a name that no format writes");
  expect_refused(one(info("a b", {8}, kF32, 0)), "a name that no format writes");
  expect_refused(one(info("x", {}, kF32, 0)), "tensor 'x': expected 1 to 4 axes, got 0");
  expect_refused(one(info("x", {1, 1, 1, 1, 1}, kF32, 0)), "expected 1 to 4 axes, got 5");
  expect_refused(one(info("x", {0}, kF32, 0)), "axis 0: expected a size above 0");
  expect_refused(one(info("x", {8, 1ull << 63}, kF32, 0)), "axis 1: expected a size above 0");
  expect_refused(one(info("x", {1ull << 32, 1ull << 32}, kF32, 0)), "a product in 63 bits");
  expect_refused(one(info("x", {1ull << 61}, kF32, 0)), "expected at most");
  expect_refused(one(info("x", {33}, kQ8_0, 0)), "whole blocks of 32 elements in Q8_0, got 33");
  expect_refused(one(info("x", {8}, kF32, 8)), "offset: expected a multiple of 32, got 8");
  expect_refused(one(info("x", {8}, kF32, 64)), "expected its 32 bytes at offset 64 within 64");
  expect_refused(one(info("x", {8}, kF32, 0), 31), "expected its 32 bytes at offset 0 within 31");
  expect_refused(one(info("x", {8}, kF32, 0ull - 32)), "within 64 bytes of data");
  expect_error([&] { read_image(one(info("x", {32}, 3, 0))); }, ErrorCode::kUnsupported,
               "got Q4_1");
  expect_error([&] { read_image(one(info("x", {32}, 999, 0))); }, ErrorCode::kUnsupported,
               "got number 999");
  expect_refused(gguf({}, {info("x", {8}, kF32, 0), info("x", {8}, kF32, 32)}, 64),
                 "tensor 'x': the name occurs twice");
  expect_refused(gguf({}, {info("x", {8}, kF32, 32), info("y", {16}, kF32, 0)}, 64),
                 "tensor 'x': expected its data to begin at 64 or later, got 32 (overlap)");
}

TEST(Gguf, ContainsEveryPrefixAndEveryChangedByte) {
  const std::string image =
      gguf({key("general.alignment", GgufType::kU32, number(32, 4)),
            key("list", GgufType::kArray, number(8, 4) + number(2, 8) + text("x") + text("yy"))},
           {info("x", {32, 1}, kQ8_0, 0), info("y", {2}, kF32, 64)}, 96);
  for (size_t n = 0; n < image.size(); ++n)
    expect_contained([&] { read_image(image.substr(0, n)); });
  for (size_t at = 0; at < image.size() - 96; ++at) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string changed = image;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      expect_contained([&] { read_image(changed); });
    }
  }
}

TEST(Gguf, WriterRefusesMisuse) {
  const auto expect_internal = [](const std::function<void(GgufWriter&)>& fill,
                                  std::string_view part) {
    expect_error([&] { written(fill); }, ErrorCode::kInternal, part);
  };
  const std::string bytes(32, '\0');
  expect_internal([](GgufWriter& w) { w.declare("x", DType::kQ8_0, {33}); }, "not whole blocks");
  expect_internal([](GgufWriter& w) { w.declare("x", DType::kF32, {0}); }, "sizes above 0");
  expect_internal([](GgufWriter& w) { w.declare("x", DType::kF32, {8}); }, "expected 32 bytes");
  expect_internal(
      [&](GgufWriter& w) {
        w.declare("x", DType::kF32, {7});
        w.write(as_bytes(bytes));
      },
      "'x': expected at most 28 bytes more, got 32");
  expect_internal(
      [&](GgufWriter& w) {
        w.declare("x", DType::kF32, {8});
        w.write(as_bytes(bytes));
        w.write(as_bytes(bytes));
      },
      "beyond the last tensor");
  expect_internal(
      [](GgufWriter& w) {
        w.add_u32("k", 1);
        w.add_u32("k", 2);
      },
      "key 'k' twice");
  expect_error([&] { written([](GgufWriter& w) { w.declare("x", DType::kU8, {8}); }); },
               ErrorCode::kUnsupported, "GGUF has no type U8");
}

}  // namespace
}  // namespace adder
