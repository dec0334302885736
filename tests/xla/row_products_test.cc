// The product of one row and a matrix, as a whole and in parts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/xla/lower.h"
#include "testing/inputs.h"
#include "testing/xla_program.h"

namespace adder::xla {
namespace {

// Of 33 products below 1, which another device adds in another order: 2 * 33 roundings of a sum
// below 33, each at most 2^-19 * 2^-1.
const XlaTolerance kRowSums{.relative = 0, .absolute = 1e-4};

struct RowProduct {
  HostValue result;
  std::string text;
};

RowProduct multiply_row(int64_t out, int64_t in, bool bias, Element element, bool in_parts) {
  testing::Rng rng(1);
  const auto floats = [&](int64_t rows, int64_t cols) {
    return host<float>({rows, cols}, rng.uniforms(rows * cols, -1, 1));
  };
  ProgramCase c;
  const Value row = c.input(floats(1, in));
  Value weight = c.input(floats(out, in));
  if (element != Element::kF32) weight = c.b.convert(weight, element);
  const std::vector<Value> operands = {row, weight, bias ? c.input(floats(1, out)) : kNoValue};
  const std::vector<int64_t> attributes = {in_parts};
  c.b.result(lower_rows(TapeOp::kMatmul, {c.b, operands, attributes})[0]);
  RowProduct product;
  product.result = c.run_one(kRowSums);
  product.text = stablehlo_text(c.program);
  return product;
}

TEST(RowProduct, InPartsIsTheSame) {
  // Lengths that 8, 4, 2 and nothing divides.
  for (const int64_t out : {48, 12, 6, 7, 1}) {
    for (const Element element : {Element::kF32, Element::kBF16}) {
      const RowProduct whole = multiply_row(out, 33, out == 12, element, false);
      const RowProduct parts = multiply_row(out, 33, out == 12, element, true);
      EXPECT_EQ(parts.result.type, whole.result.type);
      // Parts take nothing from the sums: the interpreter adds in the same order.
      EXPECT_EQ(values<float>(parts.result), values<float>(whole.result)) << out;
    }
  }
}

TEST(RowProduct, PartsAreABatch) {
  EXPECT_NE(multiply_row(48, 16, false, Element::kF32, true).text.find("tensor<8x6x16xf32>"),
            std::string::npos);
  EXPECT_NE(multiply_row(12, 16, false, Element::kF32, true).text.find("tensor<4x3x16xf32>"),
            std::string::npos);
  EXPECT_EQ(multiply_row(48, 16, false, Element::kF32, false).text.find("tensor<8x6x16xf32>"),
            std::string::npos);
}

}  // namespace
}  // namespace adder::xla
