// What the builder's functions check before they append: each throws Error(kInternal) that names
// the operation, what it expected and what it got.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/xla/program.h"
#include "core/error.h"

namespace adder::xla {

template <typename... Args>
void builder_expect(bool holds, Opcode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds)
    fail(ErrorCode::kInternal, "xla builder: {}: {}", opcode_name(code),
         fmt::format(format, std::forward<Args>(args)...));
}

void builder_expect_type(Opcode code, std::string_view what, const Type& expected, const Type& got);
void builder_expect_axis(Opcode code, int64_t axis, size_t rank);
void builder_expect_count(Opcode code, std::string_view what, size_t expected, size_t got);

// Which of axes 0 .. rank - 1 are named, each at most once.
std::vector<bool> builder_mark_axes(Opcode code, const std::vector<int64_t>& axes, size_t rank);

enum ElementGroup : unsigned { kGroupF32 = 1, kGroupF16 = 2, kGroupInt = 4, kGroupPred = 8 };

void builder_expect_element(Opcode code, unsigned groups, const Type& got);

}  // namespace adder::xla
