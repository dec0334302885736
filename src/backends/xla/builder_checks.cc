#include "backends/xla/builder_checks.h"

#include <string>

namespace adder::xla {
namespace {

unsigned builder_group(Element element) {
  switch (element) {
    case Element::kF32:
      return kGroupF32;
    case Element::kF16:
    case Element::kBF16:
      return kGroupF16;
    case Element::kPred:
      return kGroupPred;
    default:
      return kGroupInt;
  }
}

}  // namespace

void builder_expect_type(Opcode code, std::string_view what, const Type& expected,
                         const Type& got) {
  if (expected != got)
    fail(ErrorCode::kInternal, "xla builder: {}: {}: expected {}, got {}", opcode_name(code), what,
         type_text(expected), type_text(got));
}

void builder_expect_axis(Opcode code, int64_t axis, size_t rank) {
  builder_expect(axis >= 0 && static_cast<size_t>(axis) < rank, code,
                 "expected an axis below {}, got {}", rank, axis);
}

void builder_expect_count(Opcode code, std::string_view what, size_t expected, size_t got) {
  builder_expect(expected == got, code, "{}: expected {}, got {}", what, expected, got);
}

std::vector<bool> builder_mark_axes(Opcode code, const std::vector<int64_t>& axes, size_t rank) {
  std::vector<bool> marked(rank);
  for (const int64_t axis : axes) {
    builder_expect_axis(code, axis, rank);
    builder_expect(!marked[axis], code, "expected different axes, got {} twice", axis);
    marked[axis] = true;
  }
  return marked;
}

void builder_expect_element(Opcode code, unsigned groups, const Type& got) {
  if (builder_group(got.element) & groups) return;
  std::string expected;
  const auto name = [&](unsigned group, std::string_view text) {
    if (groups & group) expected.append(expected.empty() ? "" : " or ").append(text);
  };
  name(kGroupF32, "f32");
  name(kGroupF16, "f16 or bf16");
  name(kGroupInt, "integers");
  name(kGroupPred, "i1");
  fail(ErrorCode::kInternal, "xla builder: {}: expected {}, got {}", opcode_name(code), expected,
       type_text(got));
}

}  // namespace adder::xla
