// A program in static single assignment, of the operations of StableHLO
// (openxla.org/stablehlo/spec) that the backend records. Shapes are static; the only control flow
// is kWhile. One function, whose arguments and results are arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace adder::xla {

enum class Element : uint8_t { kPred, kI8, kI32, kU32, kU64, kF16, kBF16, kF32 };

size_t element_bytes(Element element);           // kPred: 1
std::string_view element_name(Element element);  // as MLIR writes it: "i1", "ui32", "bf16"

struct Type {
  Element element = Element::kF32;
  std::vector<int64_t> shape;  // empty: a scalar

  int64_t size() const;
  size_t bytes() const;
  bool operator==(const Type&) const = default;
};

std::string type_text(const Type& type);  // as MLIR writes it: "tensor<2x3xf32>"

using Value = uint32_t;  // an index into Program::types
inline constexpr Value kNoValue = ~Value{0};

enum class Opcode : uint8_t {
  kConstant,  // payload: the bits of one element, of which the whole array consists
  kIota,      // axis
  kReshape,
  kConvert,
  kBitcastConvert,
  kTranspose,           // dims: the permutation
  kBroadcastInDim,      // dims: the axis of the result for each axis of the operand
  kSlice,               // starts, limits (strides are 1)
  kDynamicSlice,        // operands: array, then a scalar i32 for each axis; dims: sizes
  kDynamicUpdateSlice,  // operands: array, update, then a scalar i32 for each axis
  kConcatenate,         // axis
  kPad,         // operands: array, scalar; starts: edge_padding_low, limits: edge_padding_high
  kGatherRows,  // operands: (rows, ...) and i32 (n): the rows, clamped; stablehlo.gather
  kDotGeneral,  // dot
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRightLogical,
  kNegate,
  kExponential,
  kLogPlusOne,
  kLog,
  kRsqrt,
  kSqrt,
  kFloor,
  kAbs,
  kIsFinite,
  kNot,
  kCompare,  // compare
  kSelect,   // operands: pred, where true, where false
  kReduce,   // operands: array, scalar to begin with; dims: axes that go; reducer
  kSort,     // operands: keys f32, then i32 arrays of that shape; along `axis`, stable, the
             // largest key first, NaN last; results: all of them in the new order
  kWhile     // operands and results: what is carried; regions: condition, body
};

std::string_view opcode_name(Opcode code);  // "stablehlo.add"

enum class Comparison : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };
enum class Reducer : uint8_t { kAdd, kMaximum, kMinimum, kAnd, kOr };

struct DotDims {
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};

// Of a product with float32 operands. By default a TPU rounds them to bfloat16 and a GPU to 19
// bits; so does the interpreter, to bfloat16, although XLA on a CPU does not.
enum class Precision : uint8_t { kDefault, kHighest };

struct Op;

// A list of operations with what comes in and goes out. An operation may use values of the blocks
// around its own, as StableHLO's regions may.
struct Block {
  std::vector<Value> arguments;
  std::vector<Op> ops;
  std::vector<Value> results;
};

struct Op {
  Opcode code;
  std::vector<Value> operands = {};
  std::vector<Value> results = {};
  std::vector<int64_t> dims = {}, starts = {}, limits = {};
  int64_t axis = 0;
  uint64_t payload = 0;
  DotDims dot = {};
  Precision precision = Precision::kDefault;  // of kDotGeneral
  Comparison compare = Comparison::kEq;
  Reducer reducer = Reducer::kAdd;
  std::vector<Block> regions = {};
};

struct Program {
  std::deque<Type> types;  // of each Value; references to them stay valid while it grows
  Block main;
  // For each result of main the argument whose memory it takes over, or -1. Such an argument is
  // consumed by running the program.
  std::vector<int32_t> donated;
};

// The generic text form of StableHLO, in creation order: the same program has the same bytes.
// float32 constants are hexadecimal bit patterns.
std::string stablehlo_text(const Program& program);

// What is wrong with a program, one line, or nothing: every value defined once and before its use,
// types of operands and results as the operation demands, donated arguments of the result's type.
std::string verify(const Program& program);

}  // namespace adder::xla
