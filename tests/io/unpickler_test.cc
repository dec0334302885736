#include "io/unpickler.h"

#include "io/io_testing.h"

namespace adder {
namespace {

using namespace adder::testing;
using Kind = PickledData::Kind;
using namespace std::string_view_literals;

PickledData load(std::string_view pickle) {
  return unpickle(as_bytes(pickle), "data.pkl");
}
void refuse(std::string_view pickle, std::string_view part) {
  expect_bad_input([&] { load(pickle); }, part);
}
// "\x80\x02" + opcodes
std::string proto(std::string_view opcodes) {
  return "\x80\x02" + std::string(opcodes);
}

TEST(Unpickler, ReadsPlainData) {
  // [None, True, False, -5, 200, 40000, 1.5, "text", b"\x01", (1,), {"k": -2}]
  const std::string pickle = proto(
      "](N\x88\x89J\xfb\xff\xff\xffK\xc8M\x40\x9cG\x3f\xf8\0\0\0\0\0\0X\4\0\0\0textC\1\1K\1"
      "\x85}X\1\0\0\0k\x8a\1\xfese."sv);
  const PickledData data = load(pickle);  // its strings point into the pickle
  const auto& list = data.at(data.root());
  ASSERT_EQ(list.kind, Kind::kList);
  ASSERT_EQ(list.items.size(), 11u);
  const auto item = [&](size_t i) -> const PickledData::Value& { return data.at(list.items[i]); };
  EXPECT_EQ(item(0).kind, Kind::kNone);
  EXPECT_EQ(item(1).kind, Kind::kBool);
  EXPECT_EQ(item(1).integer, 1);
  EXPECT_EQ(item(2).integer, 0);
  EXPECT_EQ(item(3).integer, -5);
  EXPECT_EQ(item(4).integer, 200);
  EXPECT_EQ(item(5).integer, 40000);
  EXPECT_EQ(item(6).kind, Kind::kFloat);
  EXPECT_EQ(item(6).number, 1.5);
  EXPECT_EQ(item(7).text, "text");
  EXPECT_EQ(item(8).kind, Kind::kBytes);
  ASSERT_EQ(item(9).kind, Kind::kTuple);
  EXPECT_EQ(data.at(item(9).items[0]).integer, 1);
  ASSERT_EQ(item(10).kind, Kind::kDict);
  EXPECT_EQ(data.at(item(10).items[1]).integer, -2);
}

TEST(Unpickler, ReadsLongIntegers) {
  const auto value = [](std::string_view body) {
    const PickledData data = load(proto("\x8a" + std::string(body) + "."));
    return data.at(data.root());
  };
  EXPECT_EQ(value("\0"sv).integer, 0);
  EXPECT_EQ(value("\1\xff"sv).integer, -1);
  EXPECT_EQ(value("\2\xff\0"sv).integer, 255);
  EXPECT_EQ(value("\5\0\0\0\0\1"sv).integer, int64_t{1} << 32);
  EXPECT_EQ(value("\x08\0\0\0\0\0\0\0\x80"sv).integer, INT64_MIN);
  EXPECT_EQ(value("\x09\xff\xff\xff\xff\xff\xff\xff\xff\0"sv).kind, Kind::kBigInt);
}

TEST(Unpickler, ReadsProtocol4Forms) {
  // frame, short strings, MEMOIZE, STACK_GLOBAL, long string and bytes lengths
  std::string pickle = "\x80\x04\x95";
  put(pickle, 50, 8);
  pickle +=
      "(\x8c\1k\x94h\0\x8c\x0b"
      "collections\x8c\x0bOrderedDict\x93\x94)R"sv;
  pickle += "\x8d"sv;
  put(pickle, 2, 8);
  pickle += "xyt."sv;
  const PickledData data = load(pickle);
  const auto& tuple = data.at(data.root());
  ASSERT_EQ(tuple.items.size(), 4u);
  EXPECT_EQ(tuple.items[0], tuple.items[1]);  // the same value, recalled
  EXPECT_EQ(data.at(tuple.items[2]).kind, Kind::kDict);
  EXPECT_EQ(data.at(tuple.items[3]).text, "xy");
}

TEST(Unpickler, DescribesTensors) {
  PickleWriter w;
  w.tensor("HalfStorage", "3", 20, 2, {2, 3}, {1, 6}).op(".");
  const PickledData data = load(w.bytes);
  ASSERT_EQ(data.at(data.root()).kind, Kind::kTensor);
  ASSERT_EQ(data.tensors().size(), 1u);
  const PickledTensor& tensor = data.tensors()[0];
  EXPECT_EQ(tensor.dtype, DType::kF16);
  EXPECT_EQ(tensor.storage_key, "3");
  EXPECT_EQ(tensor.storage_size, 20);
  EXPECT_EQ(tensor.offset, 2);
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensor.stride, (std::vector<int64_t>{1, 6}));
}

TEST(Unpickler, KnowsEveryStorageClass) {
  const std::pair<const char*, DType> kTypes[] = {
      {"FloatStorage", DType::kF32},     {"HalfStorage", DType::kF16},
      {"BFloat16Storage", DType::kBF16}, {"DoubleStorage", DType::kF64},
      {"CharStorage", DType::kI8},       {"ByteStorage", DType::kU8},
      {"ShortStorage", DType::kI16},     {"IntStorage", DType::kI32},
      {"LongStorage", DType::kI64},      {"BoolStorage", DType::kBool},
      {"UntypedStorage", DType::kU8}};
  for (const auto& [type, dtype] : kTypes) {
    PickleWriter w;
    w.tensor(type, "0", 1, 0, {1}, {1}).op(".");
    EXPECT_EQ(load(w.bytes).tensors()[0].dtype, dtype) << type;
  }
  PickleWriter w;
  w.tensor("ComplexFloatStorage", "0", 1, 0, {1}, {1}).op(".");
  refuse(w.bytes, "refused: pickle asks for 'torch.ComplexFloatStorage'");
}

TEST(Unpickler, ParametersAreTheirTensors) {
  PickleWriter w;
  w.global("torch._utils", "_rebuild_parameter")
      .op("(")
      .tensor("FloatStorage", "0", 4, 0, {4}, {1});
  w.op("\x88").global("collections", "OrderedDict").op(")RtR.");
  const PickledData data = load(w.bytes);
  EXPECT_EQ(data.at(data.root()).kind, Kind::kTensor);
}

TEST(Unpickler, RefusesEverythingThatIsNotData) {
  const std::string only = "; only tensors, dicts, strings and numbers are read";
  // os.system("id") in both spellings of a global, and as torch would hide it
  refuse(proto("cos\nsystem\nX\2\0\0\0id\x85R."sv),
         "byte 2: refused: pickle asks for 'os.system'" + only);
  refuse("\x80\x04\x8c\2os\x8c\6system\x93\x8c\2id\x85R."sv,
         "refused: pickle asks for 'os.system'" + only);
  refuse(proto("cbuiltins\neval\nX\1\0\0\0x\x85R."sv), "'builtins.eval'");
  refuse(proto("c__builtin__\nexec\n)R."sv), "'__builtin__.exec'");
  refuse(proto("ccollections\nOrderedDict.__init__.__globals__\n."sv),
         "'collections.OrderedDict.__init__");
  refuse(proto("ctorch\nload\n."sv), "'torch.load'");
  refuse(proto("ctorch._utils\n_rebuild_tensor_v3\n."sv), "'torch._utils._rebuild_tensor_v3'");
  refuse(proto("ctorch.os\nFloatStorage\n."sv), "'torch.os.FloatStorage'");
  refuse(proto("cnumpy.core.multiarray\n_reconstruct\n."sv),
         "'numpy.core.multiarray._reconstruct'");
  refuse(proto("ca\x1b[31m\nb\n."sv), "'a\\x1b[31m.b'");  // no escape reaches the terminal
  // Opcodes that make objects, look up extensions, or belong to other protocols.
  for (const char opcode :
       "iob\x81\x92\x82\x83\x84P\x8b\x8f\x90\x91\x96\x97\x98"
       "02VSFIL1dlgp"sv) {
    if (opcode == 'b') continue;
    refuse(proto(std::string("}(") + opcode + "a\nb\n."), "refused: pickle opcode 0x");
  }
  refuse(proto(")}b."sv), "refused: pickle sets attributes");
  refuse(proto("}K\1b."sv), "refused: pickle sets attributes");
  refuse(proto("X\1\0\0\0f)R."sv), "refused: pickle calls what is no function");
  refuse(proto("ctorch\nFloatStorage\n)R."sv), "refused: pickle calls what is no function");
}

TEST(Unpickler, BuildOnlyDropsAttributesOfADict) {
  const PickledData data = load(proto("ccollections\nOrderedDict\n)R}X\1\0\0\0aK\1sb."sv));
  EXPECT_EQ(data.at(data.root()).kind, Kind::kDict);
  EXPECT_TRUE(data.at(data.root()).items.empty());
}

TEST(Unpickler, RefusesMalformedPickles) {
  refuse("", "data.pkl: cut off at byte 0");
  refuse("\x80"sv, "cut off at byte 1");
  refuse("\x80\x01N."sv, "expected pickle protocol 2 to 5, got 1");
  refuse("\x80\x06N."sv, "got 6");
  refuse(proto("."), "expected one value at the end, got 0");
  refuse(proto("NN."), "expected one value at the end, got 2");
  refuse(proto("(N."), "expected one value at the end");
  refuse(proto("N"), "cut off at byte 3");
  refuse(proto("t."), "an operation without its mark");
  refuse(proto("\x85."), "an operation without its operand");
  refuse(proto("N\x87."), "an operation without its operand");
  refuse(proto("N(a."), "an operation without its operand");  // never reaches below a mark
  refuse(proto("](K\1s."), "without its operand");
  refuse(proto("K\1K\1a."sv), "expected a list");
  refuse(proto("]K\1K\1s."sv), "expected a dict");
  refuse(proto("}(K\1u."sv), "a dict key without its value");
  refuse(proto("h\0."sv), "memo entry 0 does not exist");
  refuse(proto("Nq\5h\4."sv), "memo entry 5 is out of order");
  refuse(proto("Nr\xff\xff\xff\xff."sv), "memo entry 4294967295 is out of order");
  refuse(proto("q\0."sv), "without its operand");
  refuse(proto("X\xff\xff\xff\xffxy."sv), "expected 4294967295 bytes more, got 3");
  refuse("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffxy."sv, "cut off");
  refuse("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff."sv, "cut off");
  refuse(proto("cos"sv), "a line without end");
  refuse(proto("c" + std::string(300, 'a') + "\nb\n."), "a line without end");
  refuse(proto("NN\x93."sv), "expected the name of a class");
  refuse(proto("G\0\0."sv), "cut off");
}

TEST(Unpickler, RefusesMalformedReferencesToStorages) {
  const std::string_view kWhat = "expected a reference ('storage', class of storage, key, location";
  refuse(proto("NQ."), kWhat);
  refuse(proto("(tQ."), kWhat);
  const auto id = [](std::string_view tag, std::string_view module, std::string_view name) {
    PickleWriter w;
    w.op("(").text(tag).global(module, name).text("0").text("cpu").integer(4).op("tQ.");
    return w.bytes;
  };
  refuse(id("module", "torch", "FloatStorage"), kWhat);
  refuse(id("storage", "collections", "OrderedDict"), kWhat);
  PickleWriter negative;
  negative.storage("FloatStorage", "0", -1).op(".");
  refuse(negative.bytes, "a storage of -1 elements");
  PickleWriter none;
  none.op("(").text("storage").global("torch", "FloatStorage").text("0").text("cpu").op("NtQ.");
  refuse(none.bytes, "expected an integer for the size of a storage");
}

TEST(Unpickler, RefusesTensorsThatLeaveTheirStorage) {
  const auto refuse_layout = [](int64_t size, int64_t offset, std::vector<int64_t> shape,
                                std::vector<int64_t> stride, std::string_view part) {
    PickleWriter w;
    w.tensor("FloatStorage", "0", size, offset, shape, stride).op(".");
    refuse(w.bytes, part);
  };
  const int64_t big = INT64_MAX;
  const std::string_view kLeaves = "leaves its storage";
  refuse_layout(6, 0, {7}, {1},
                "(offset 0, shape [7], stride [1]) leaves its storage of 6 elements");
  refuse_layout(6, 1, {2, 3}, {3, 1}, kLeaves);
  refuse_layout(6, 0, {2, 2}, {5, 1}, kLeaves);
  refuse_layout(6, 7, {0}, {1}, kLeaves);
  refuse_layout(6, -1, {1}, {1}, kLeaves);
  refuse_layout(6, big, {2}, {1}, kLeaves);
  refuse_layout(6, 1, {2}, {big}, kLeaves);
  refuse_layout(6, 0, {3}, {big}, kLeaves);
  refuse_layout(6, 0, {1 << 30, 1 << 30, 1 << 30}, {0, 0, 0}, kLeaves);
  refuse_layout(6, 0, {0, big, big}, {1, 0, 0}, kLeaves);
  refuse_layout(1, 0, {2}, {0}, kLeaves);  // expanded: more elements than the storage has
  refuse_layout(big, big, {1}, {1}, kLeaves);
  refuse_layout(6, 0, {-1}, {1}, "expected a shape not below zero, got -1");
  refuse_layout(6, 0, {1}, {-1}, "expected a stride not below zero, got -1");
  refuse_layout(6, 0, {2, 3}, {1}, "a shape of 2 dimensions with 1 strides");
  refuse_layout(6, 0, std::vector<int64_t>(9, 1), std::vector<int64_t>(9, 1),
                "at most 8 dimensions");
  refuse(proto("ctorch._utils\n_rebuild_tensor_v2\n)R."sv), "expected _rebuild_tensor_v2(storage");
  refuse(proto("ctorch._utils\n_rebuild_tensor_v2\nNR."sv), "expected a tuple of arguments");
  refuse(proto("ctorch._utils\n_rebuild_parameter\n)R."sv), "expected a tensor as first argument");
  refuse(proto("ccollections\nOrderedDict\nN\x85R."sv), "expected OrderedDict() without arguments");
}

TEST(Unpickler, AcceptsLayoutsThatFit) {
  for (const auto& [offset, shape, stride] :
       std::vector<std::tuple<int64_t, std::vector<int64_t>, std::vector<int64_t>>>{
           {0, {6}, {1}}, {0, {3, 2}, {1, 3}}, {5, {}, {}}, {6, {0}, {1}}, {1, {2, 2}, {3, 1}}}) {
    PickleWriter w;
    w.tensor("FloatStorage", "0", 6, offset, shape, stride).op(".");
    EXPECT_EQ(load(w.bytes).tensors().size(), 1u);
  }
}

TEST(Unpickler, BoundsMemory) {
  constexpr size_t kMany = 20'000'000;
  refuse(proto(std::string(kMany, '(')), "nested deeper than 1000 levels");
  refuse(proto(std::string(kMany, ']')), "more than 1000000 values");
  std::string recalls = proto("Nq\0"sv);
  for (size_t i = 0; i < kMany / 2; ++i) recalls += "h\0"sv;
  refuse(recalls, "more than 1000000 values on the stack");
  // One list grown from its own memo entry: 0 new values, 4 bytes of pickle an entry.
  std::string appends = proto("]q\0"sv);
  for (size_t i = 0; i < kMany / 4; ++i) appends += "h\0a"sv;
  refuse(appends, "more than 4000000 entries");
  // The same arguments called again and again.
  PickleWriter w;
  w.global("torch._utils", "_rebuild_tensor_v2")
      .op("q"sv)
      .op("\0("sv)
      .storage("FloatStorage", "0", 1);
  w.integer(0)
      .integers(std::vector<int64_t>(8, 1))
      .integers(std::vector<int64_t>(8, 1))
      .op("tq\1"sv);
  w.op("R");
  for (size_t i = 0; i < 250'000; ++i) w.op("h\0h\1R"sv);
  refuse(w.bytes, "more than 200000 tensors");
  refuse(std::string((64 << 20) + 1, '\0'), "at most 67108864 bytes of pickle");
}

TEST(Unpickler, CyclesAreHarmless) {
  const PickledData data = load(proto("]q\0h\0a."sv));
  EXPECT_EQ(data.at(data.root()).items[0], data.root());
}

TEST(Unpickler, SurvivesTruncationAndEveryChangedByte) {
  PickleWriter w;
  w.op("}(")
      .text("w")
      .tensor("FloatStorage", "0", 6, 0, {2, 3}, {3, 1})
      .text("n")
      .integer(7)
      .op("u.");
  EXPECT_EQ(load(w.bytes).tensors().size(), 1u);
  for (size_t size = 0; size < w.bytes.size(); ++size) {
    EXPECT_THROW(load(std::string_view(w.bytes).substr(0, size)), Error) << size;
  }
  for (size_t i = 0; i < w.bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string copy = w.bytes;
      copy[i] = static_cast<char>(value);
      expect_contained([&] { load(copy); });
    }
  }
}

}  // namespace
}  // namespace adder
