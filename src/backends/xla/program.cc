#include "backends/xla/program.h"

#include "core/error.h"

namespace adder::xla {

size_t element_bytes(Element element) {
  switch (element) {
    case Element::kPred:
    case Element::kI8:
      return 1;
    case Element::kF16:
    case Element::kBF16:
      return 2;
    case Element::kI32:
    case Element::kU32:
    case Element::kF32:
      return 4;
    case Element::kU64:
      return 8;
  }
  fail(ErrorCode::kInternal, "xla program: no element {}", static_cast<int>(element));
}

std::string_view element_name(Element element) {
  switch (element) {
    case Element::kPred:
      return "i1";
    case Element::kI8:
      return "i8";
    case Element::kI32:
      return "i32";
    case Element::kU32:
      return "ui32";
    case Element::kU64:
      return "ui64";
    case Element::kF16:
      return "f16";
    case Element::kBF16:
      return "bf16";
    case Element::kF32:
      return "f32";
  }
  fail(ErrorCode::kInternal, "xla program: no element {}", static_cast<int>(element));
}

int64_t Type::size() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

size_t Type::bytes() const {
  return static_cast<size_t>(size()) * element_bytes(element);
}

std::string type_text(const Type& type) {
  std::string text = "tensor<";
  for (const int64_t extent : type.shape) text += fmt::format("{}x", extent);
  text += element_name(type.element);
  return text + ">";
}

std::string_view opcode_name(Opcode code) {
  switch (code) {
    case Opcode::kConstant:
      return "stablehlo.constant";
    case Opcode::kIota:
      return "stablehlo.iota";
    case Opcode::kReshape:
      return "stablehlo.reshape";
    case Opcode::kConvert:
      return "stablehlo.convert";
    case Opcode::kBitcastConvert:
      return "stablehlo.bitcast_convert";
    case Opcode::kTranspose:
      return "stablehlo.transpose";
    case Opcode::kBroadcastInDim:
      return "stablehlo.broadcast_in_dim";
    case Opcode::kSlice:
      return "stablehlo.slice";
    case Opcode::kDynamicSlice:
      return "stablehlo.dynamic_slice";
    case Opcode::kDynamicUpdateSlice:
      return "stablehlo.dynamic_update_slice";
    case Opcode::kConcatenate:
      return "stablehlo.concatenate";
    case Opcode::kPad:
      return "stablehlo.pad";
    case Opcode::kGatherRows:
      return "stablehlo.gather";
    case Opcode::kDotGeneral:
      return "stablehlo.dot_general";
    case Opcode::kAdd:
      return "stablehlo.add";
    case Opcode::kSubtract:
      return "stablehlo.subtract";
    case Opcode::kMultiply:
      return "stablehlo.multiply";
    case Opcode::kDivide:
      return "stablehlo.divide";
    case Opcode::kMaximum:
      return "stablehlo.maximum";
    case Opcode::kMinimum:
      return "stablehlo.minimum";
    case Opcode::kAnd:
      return "stablehlo.and";
    case Opcode::kOr:
      return "stablehlo.or";
    case Opcode::kXor:
      return "stablehlo.xor";
    case Opcode::kShiftLeft:
      return "stablehlo.shift_left";
    case Opcode::kShiftRightLogical:
      return "stablehlo.shift_right_logical";
    case Opcode::kNegate:
      return "stablehlo.negate";
    case Opcode::kExponential:
      return "stablehlo.exponential";
    case Opcode::kLogPlusOne:
      return "stablehlo.log_plus_one";
    case Opcode::kLog:
      return "stablehlo.log";
    case Opcode::kRsqrt:
      return "stablehlo.rsqrt";
    case Opcode::kSqrt:
      return "stablehlo.sqrt";
    case Opcode::kFloor:
      return "stablehlo.floor";
    case Opcode::kAbs:
      return "stablehlo.abs";
    case Opcode::kIsFinite:
      return "stablehlo.is_finite";
    case Opcode::kNot:
      return "stablehlo.not";
    case Opcode::kCompare:
      return "stablehlo.compare";
    case Opcode::kSelect:
      return "stablehlo.select";
    case Opcode::kReduce:
      return "stablehlo.reduce";
    case Opcode::kSort:
      return "stablehlo.sort";
    case Opcode::kWhile:
      return "stablehlo.while";
  }
  fail(ErrorCode::kInternal, "xla program: no opcode {}", static_cast<int>(code));
}

}  // namespace adder::xla
