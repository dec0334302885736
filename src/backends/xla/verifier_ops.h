// The verifier's view of single operations.
#pragma once

#include <utility>

#include "backends/xla/program.h"
#include "core/error.h"

namespace adder::xla {

// A sentence about what is wrong; verify() gives it back.
struct Wrong {
  std::string text;
};

template <typename... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw Wrong{fmt::format(format, std::forward<Args>(args)...)};
}

// Checks the types of an operation whose operands, results and regions' values are values of the
// program. Throws Wrong.
void verify_op(const Program& program, const Op& op);

}  // namespace adder::xla
