// Element-wise operations of the interpreter: float32 in float32, integers modulo their range.
#include <cstdint>
#include <limits>

#include "backends/xla/interpreter_ops.h"
#include "core/dtype.h"
#include "core/error.h"

namespace adder::xla {
namespace {

[[noreturn]] void no_elementwise(Opcode code, Element element) {
  fail(ErrorCode::kInternal, "xla interpreter: {} of {}", opcode_name(code), element_name(element));
}

template <typename T, typename F>
void map_pairs(Cells& out, const Cells& a, const Cells& b, F f) {
  auto* r = out.as<std::invoke_result_t<F, T, T>>();
  const T *x = a.as<T>(), *y = b.as<T>();
  const size_t count = a.bytes() / sizeof(T);
  for (size_t i = 0; i < count; ++i) r[i] = f(x[i], y[i]);
}

template <typename T, typename F>
void map_each(Cells& out, const Cells& a, F f) {
  auto* r = out.as<std::invoke_result_t<F, T>>();
  const T* x = a.as<T>();
  const size_t count = a.bytes() / sizeof(T);
  for (size_t i = 0; i < count; ++i) r[i] = f(x[i]);
}

// As XLA: a quotient by zero has all bits set, the lowest number by -1 is itself.
template <typename T>
T plain_quotient(T a, T b) {
  if constexpr (!std::is_floating_point_v<T>) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>)
      if (b == T{-1} && a == std::numeric_limits<T>::min()) return a;
  }
  return static_cast<T>(a / b);
}

template <typename T>
void arithmetic(Opcode code, Element element, Cells& r, const Cells& a, const Cells& b) {
  switch (code) {
    case Opcode::kAdd:
      return map_pairs<T>(r, a, b, PlainAdd());
    case Opcode::kMaximum:
      return map_pairs<T>(r, a, b, PlainMaximum());
    case Opcode::kMinimum:
      return map_pairs<T>(r, a, b, PlainMinimum());
    case Opcode::kDivide:
      return map_pairs<T>(r, a, b, [](T x, T y) { return plain_quotient(x, y); });
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (code == Opcode::kSubtract) return map_pairs<T>(r, a, b, [](T x, T y) { return x - y; });
    if (code == Opcode::kMultiply) return map_pairs<T>(r, a, b, [](T x, T y) { return x * y; });
  } else {
    using U = std::make_unsigned_t<T>;
    constexpr U kBits = 8 * sizeof(T);
    switch (code) {
      case Opcode::kSubtract:
        return map_pairs<U>(r, a, b, [](U x, U y) { return static_cast<U>(x - y); });
      case Opcode::kMultiply:
        return map_pairs<U>(r, a, b, [](U x, U y) { return static_cast<U>(x * y); });
      case Opcode::kAnd:
        return map_pairs<U>(r, a, b, PlainAnd());
      case Opcode::kOr:
        return map_pairs<U>(r, a, b, PlainOr());
      case Opcode::kXor:
        return map_pairs<U>(r, a, b, [](U x, U y) { return static_cast<U>(x ^ y); });
      case Opcode::kShiftLeft:
        return map_pairs<U>(r, a, b,
                            [](U x, U y) { return y < kBits ? static_cast<U>(x << y) : U{0}; });
      case Opcode::kShiftRightLogical:
        return map_pairs<U>(r, a, b,
                            [](U x, U y) { return y < kBits ? static_cast<U>(x >> y) : U{0}; });
      default:
        break;
    }
  }
  no_elementwise(code, element);
}

template <typename T>
void comparison(Comparison c, Cells& r, const Cells& a, const Cells& b) {
  switch (c) {
    case Comparison::kEq:
      return map_pairs<T>(r, a, b, [](T x, T y) { return static_cast<uint8_t>(x == y); });
    case Comparison::kNe:
      return map_pairs<T>(r, a, b, [](T x, T y) { return static_cast<uint8_t>(x != y); });
    case Comparison::kLt:
      return map_pairs<T>(r, a, b, [](T x, T y) { return static_cast<uint8_t>(x < y); });
    case Comparison::kLe:
      return map_pairs<T>(r, a, b, [](T x, T y) { return static_cast<uint8_t>(x <= y); });
    case Comparison::kGt:
      return map_pairs<T>(r, a, b, [](T x, T y) { return static_cast<uint8_t>(x > y); });
    case Comparison::kGe:
      return map_pairs<T>(r, a, b, [](T x, T y) { return static_cast<uint8_t>(x >= y); });
  }
}

// Calls f.operator()<T>() with the type of the element.
template <typename F>
void with_number(Opcode code, Element element, F f) {
  switch (element) {
    case Element::kPred:
      return f.template operator()<uint8_t>();
    case Element::kI8:
      return f.template operator()<int8_t>();
    case Element::kI32:
      return f.template operator()<int32_t>();
    case Element::kU32:
      return f.template operator()<uint32_t>();
    case Element::kU64:
      return f.template operator()<uint64_t>();
    case Element::kF32:
      return f.template operator()<float>();
    default:
      no_elementwise(code, element);
  }
}

void unary_float(Opcode code, Cells& r, const Cells& a) {
  switch (code) {
    case Opcode::kNegate:
      return map_each<float>(r, a, [](float x) { return -x; });
    case Opcode::kExponential:
      return map_each<float>(r, a, [](float x) { return std::exp(x); });
    case Opcode::kLogPlusOne:
      return map_each<float>(r, a, [](float x) { return std::log1p(x); });
    case Opcode::kLog:
      return map_each<float>(r, a, [](float x) { return std::log(x); });
    case Opcode::kRsqrt:
      return map_each<float>(r, a, [](float x) { return 1.0f / std::sqrt(x); });
    case Opcode::kSqrt:
      return map_each<float>(r, a, [](float x) { return std::sqrt(x); });
    case Opcode::kFloor:
      return map_each<float>(r, a, [](float x) { return std::floor(x); });
    case Opcode::kAbs:
      return map_each<float>(r, a, [](float x) { return std::fabs(x); });
    case Opcode::kIsFinite:
      return map_each<float>(r, a, [](float x) { return static_cast<uint8_t>(std::isfinite(x)); });
    default:
      no_elementwise(code, Element::kF32);
  }
}

template <typename T>
void unary_integer(Opcode code, Element element, Cells& r, const Cells& a) {
  using U = std::make_unsigned_t<T>;
  if (code == Opcode::kNot && element == Element::kPred)
    return map_each<U>(r, a, [](U x) { return static_cast<U>(x ^ 1); });
  if (code == Opcode::kNot) return map_each<U>(r, a, [](U x) { return static_cast<U>(~x); });
  if (code == Opcode::kNegate)
    return map_each<U>(r, a, [](U x) { return static_cast<U>(U{0} - x); });
  if (code == Opcode::kAbs)
    return map_each<U>(r, a,
                       [](U x) { return static_cast<T>(x) < 0 ? static_cast<U>(U{0} - x) : x; });
  no_elementwise(code, element);
}

template <typename T>
void choose(Cells& r, const Cells& pred, const Cells& a, const Cells& b) {
  T* out = r.as<T>();
  const uint8_t* p = pred.as<uint8_t>();
  const T *x = a.as<T>(), *y = b.as<T>();
  for (size_t i = 0; i < pred.bytes(); ++i) out[i] = p[i] ? x[i] : y[i];
}

void select_elements(Cells& r, std::span<const Operand> operands, size_t width) {
  const Cells &pred = *operands[0].cells, &a = *operands[1].cells, &b = *operands[2].cells;
  if (width == 1) return choose<uint8_t>(r, pred, a, b);
  if (width == 2) return choose<uint16_t>(r, pred, a, b);
  if (width == 4) return choose<uint32_t>(r, pred, a, b);
  choose<uint64_t>(r, pred, a, b);
}

// One stored element of each kind; the number in it is what conversions go through.
struct StoredPred {
  uint8_t bits;
  int32_t load() const { return bits; }
  template <typename N>
  static StoredPred store(N n) {
    return {static_cast<uint8_t>(n != N{0})};
  }
};

struct StoredF16 {
  uint16_t bits;
  float load() const { return f16_to_f32(bits); }
  template <typename N>
  static StoredF16 store(N n) {
    return {f32_to_f16(static_cast<float>(n))};
  }
};

struct StoredBF16 {
  uint16_t bits;
  float load() const { return bf16_to_f32(bits); }
  template <typename N>
  static StoredBF16 store(N n) {
    return {f32_to_bf16(static_cast<float>(n))};
  }
};

template <typename T>
struct StoredNumber {
  T value;
  T load() const { return value; }
  // Towards zero; as in XLA numbers beyond the range of an integer become its ends, and NaN 0.
  template <typename N>
  static StoredNumber store(N n) {
    if constexpr (std::is_floating_point_v<N> && !std::is_floating_point_v<T>) {
      using Limits = std::numeric_limits<T>;
      if (std::isnan(n)) return {0};
      if (n <= static_cast<N>(Limits::min())) return {Limits::min()};
      if (n >= static_cast<N>(Limits::max())) return {Limits::max()};
    }
    return {static_cast<T>(n)};
  }
};

template <typename F>
void with_stored(Element element, F f) {
  switch (element) {
    case Element::kPred:
      return f.template operator()<StoredPred>();
    case Element::kI8:
      return f.template operator()<StoredNumber<int8_t>>();
    case Element::kI32:
      return f.template operator()<StoredNumber<int32_t>>();
    case Element::kU32:
      return f.template operator()<StoredNumber<uint32_t>>();
    case Element::kU64:
      return f.template operator()<StoredNumber<uint64_t>>();
    case Element::kF16:
      return f.template operator()<StoredF16>();
    case Element::kBF16:
      return f.template operator()<StoredBF16>();
    case Element::kF32:
      return f.template operator()<StoredNumber<float>>();
  }
}

}  // namespace

CellsPtr interpret_convert(const Operand& operand, const Type& result) {
  auto cells = std::make_shared<Cells>(result.bytes());
  with_stored(operand.type->element, [&]<typename From>() {
    with_stored(result.element, [&]<typename To>() {
      map_each<From>(*cells, *operand.cells, [](From x) { return To::store(x.load()); });
    });
  });
  return cells;
}

CellsPtr interpret_elementwise(const Op& op, std::span<const Operand> operands,
                               const Type& result) {
  auto cells = std::make_shared<Cells>(result.bytes());
  const Cells& a = *operands[0].cells;
  const Element element = operands[0].type->element;
  if (op.code == Opcode::kSelect) {
    select_elements(*cells, operands, element_bytes(result.element));
  } else if (op.code == Opcode::kCompare) {
    with_number(op.code, element,
                [&]<typename T>() { comparison<T>(op.compare, *cells, a, *operands[1].cells); });
  } else if (operands.size() == 2) {
    with_number(op.code, element, [&]<typename T>() {
      arithmetic<T>(op.code, element, *cells, a, *operands[1].cells);
    });
  } else if (element == Element::kF32) {
    unary_float(op.code, *cells, a);
  } else {
    with_number(op.code, element, [&]<typename T>() {
      if constexpr (!std::is_floating_point_v<T>) unary_integer<T>(op.code, element, *cells, a);
    });
  }
  return cells;
}

}  // namespace adder::xla
