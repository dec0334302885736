// The text of programs, byte for byte.
#include "backends/xla/program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "testing/xla_program.h"

namespace adder::xla {
namespace {

TEST(StablehloText, ASmallProgram) {
  ProgramCase c;
  const Value x = c.input(host<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Value w = c.input(host<float>({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}));
  const Value y = c.b.dot(x, w, {{}, {}, {1}, {0}});
  c.b.result(c.b.multiply(y, c.b.constant(0.5f)), 0);
  c.b.result(c.b.reduce(Reducer::kMaximum, y, {1}));
  EXPECT_EQ(stablehlo_text(c.program), R"("builtin.module"() ({
  "func.func"() ({
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<3x3xf32>):
    %2 = "stablehlo.dot_general"(%0, %1) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %3 = "stablehlo.constant"() {value = dense<0x3F000000> : tensor<f32>} : () -> tensor<f32>
    %4 = "stablehlo.broadcast_in_dim"(%3) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
    %5 = "stablehlo.multiply"(%2, %4) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %6 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
    %7 = "stablehlo.reduce"(%2, %6) ({
    ^bb0(%lhs: tensor<f32>, %rhs: tensor<f32>):
      %both = "stablehlo.maximum"(%lhs, %rhs) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%both) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    "func.return"(%5, %7) : (tensor<2x3xf32>, tensor<2xf32>) -> ()
  }) {sym_name = "main", sym_visibility = "public", function_type = (tensor<2x3xf32>, tensor<3x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>), arg_attrs = [{tf.aliasing_output = 0 : i32}, {}]} : () -> ()
}) : () -> ()
)");
  EXPECT_EQ(values<float>(c.run()[0]), (std::vector<float>{0.5f, 1, 1.5f, 2, 2.5f, 3}));
}

TEST(StablehloText, LoopsAndSorting) {
  ProgramCase c;
  const Value x = c.input(host<float>({2}, {1, NAN}));
  const std::vector<Value> sorted = c.b.sort({x, c.b.iota({Element::kI32, {2}}, 0)}, 0);
  const std::vector<Value> r = c.b.loop(
      {sorted[1]},
      [&](auto carried) {
        const Value first = c.b.reshape(c.b.slice_axis(carried[0], 0, 0, 1), {});
        return std::vector{c.b.compare(Comparison::kLt, first, c.b.constant(-3))};
      },
      [&](auto carried) { return std::vector{c.b.add(carried[0], sorted[1])}; });
  c.b.result(r[0]);
  EXPECT_EQ(stablehlo_text(c.program), R"("builtin.module"() ({
  "func.func"() ({
  ^bb0(%0: tensor<2xf32>):
    %1 = "stablehlo.iota"() {iota_dimension = 0 : i64} : () -> tensor<2xi32>
    %2, %3 = "stablehlo.sort"(%0, %1) ({
    ^bb0(%lhs: tensor<f32>, %rhs: tensor<f32>, %lhs1: tensor<i32>, %rhs1: tensor<i32>):
      %larger = "stablehlo.compare"(%lhs, %rhs) {comparison_direction = #stablehlo<comparison_direction GT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %number = "stablehlo.compare"(%lhs, %lhs) {comparison_direction = #stablehlo<comparison_direction EQ>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %nan = "stablehlo.compare"(%rhs, %rhs) {comparison_direction = #stablehlo<comparison_direction NE>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %last = "stablehlo.and"(%number, %nan) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      %before = "stablehlo.or"(%larger, %last) : (tensor<i1>, tensor<i1>) -> tensor<i1>
      "stablehlo.return"(%before) : (tensor<i1>) -> ()
    }) {dimension = 0 : i64, is_stable = true} : (tensor<2xf32>, tensor<2xi32>) -> (tensor<2xf32>, tensor<2xi32>)
    %11 = "stablehlo.while"(%3) ({
    ^bb0(%4: tensor<2xi32>):
      %5 = "stablehlo.slice"(%4) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xi32>) -> tensor<1xi32>
      %6 = "stablehlo.reshape"(%5) : (tensor<1xi32>) -> tensor<i32>
      %7 = "stablehlo.constant"() {value = dense<-3> : tensor<i32>} : () -> tensor<i32>
      %8 = "stablehlo.compare"(%6, %7) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%8) : (tensor<i1>) -> ()
    }, {
    ^bb0(%9: tensor<2xi32>):
      %10 = "stablehlo.add"(%9, %3) : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
      "stablehlo.return"(%10) : (tensor<2xi32>) -> ()
    }) : (tensor<2xi32>) -> tensor<2xi32>
    "func.return"(%11) : (tensor<2xi32>) -> ()
  }) {sym_name = "main", sym_visibility = "public", function_type = (tensor<2xf32>) -> (tensor<2xi32>)} : () -> ()
}) : () -> ()
)");
  EXPECT_EQ(values<int32_t>(c.run_one()), (std::vector<int32_t>{0, 1}));
}

// The lines of a text that name an operation.
std::string lines_of(const Program& program, const std::string& operation) {
  const std::string text = stablehlo_text(program);
  std::string found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (line.find('"' + operation + '"') != std::string::npos)
      found += line.substr(line.find_first_not_of(' ')) + "\n";
    at = end + 1;
  }
  return found;
}

TEST(StablehloText, AttributesOfEachKind) {
  Program p;
  Builder b(p);
  const Value x = b.argument({Element::kBF16, {2, 3}}), i = b.argument({Element::kI32, {4}});
  const Value at = b.argument({Element::kI32, {}});
  b.transpose(x, {1, 0});
  EXPECT_EQ(lines_of(p, "stablehlo.transpose"),
            "%3 = \"stablehlo.transpose\"(%0) {permutation = array<i64: 1, 0>} : "
            "(tensor<2x3xbf16>) -> tensor<3x2xbf16>\n");
  b.dynamic_slice(x, {at, at}, {1, 2});
  EXPECT_EQ(lines_of(p, "stablehlo.dynamic_slice"),
            "%4 = \"stablehlo.dynamic_slice\"(%0, %2, %2) {slice_sizes = array<i64: 1, 2>} : "
            "(tensor<2x3xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x2xbf16>\n");
  b.concatenate({x, x}, 1);
  EXPECT_EQ(lines_of(p, "stablehlo.concatenate"),
            "%5 = \"stablehlo.concatenate\"(%0, %0) {dimension = 1 : i64} : (tensor<2x3xbf16>, "
            "tensor<2x3xbf16>) -> tensor<2x6xbf16>\n");
  b.pad(x, b.constant(Element::kBF16, 0x3f80), {1, 0}, {0, 2});
  EXPECT_EQ(lines_of(p, "stablehlo.pad"),
            "%7 = \"stablehlo.pad\"(%0, %6) {edge_padding_low = array<i64: 1, 0>, "
            "edge_padding_high = array<i64: 0, 2>, interior_padding = array<i64: 0, 0>} : "
            "(tensor<2x3xbf16>, tensor<bf16>) -> tensor<3x5xbf16>\n");
  b.gather_rows(x, i);
  EXPECT_EQ(lines_of(p, "stablehlo.gather"),
            "%8 = \"stablehlo.gather\"(%0, %1) {dimension_numbers = #stablehlo.gather<offset_dims "
            "= [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
            "slice_sizes = array<i64: 1, 3>, indices_are_sorted = false} : (tensor<2x3xbf16>, "
            "tensor<4xi32>) -> tensor<4x3xbf16>\n");
  b.dot(x, x, {{0}, {0}, {1}, {1}});
  EXPECT_EQ(lines_of(p, "stablehlo.dot_general"),
            "%9 = \"stablehlo.dot_general\"(%0, %0) {dot_dimension_numbers = "
            "#stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
            "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, "
            "precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : "
            "(tensor<2x3xbf16>, tensor<2x3xbf16>) -> tensor<2xf32>\n");
}

TEST(StablehloText, ConstantsOfEveryElement) {
  Program p;
  Builder b(p);
  b.constant(Element::kPred, 1);
  b.constant(Element::kI8, 0xff);
  b.constant(-5);
  b.constant(Element::kU32, 0xfffffffeu);
  b.constant(Element::kU64, ~uint64_t{0});
  b.constant(Element::kF16, 0x3c);
  b.constant(Element::kBF16, 0x3f80);
  b.constant(-0.0f);
  EXPECT_EQ(lines_of(p, "stablehlo.constant"),
            "%0 = \"stablehlo.constant\"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>\n"
            "%1 = \"stablehlo.constant\"() {value = dense<-1> : tensor<i8>} : () -> tensor<i8>\n"
            "%2 = \"stablehlo.constant\"() {value = dense<-5> : tensor<i32>} : () -> tensor<i32>\n"
            "%3 = \"stablehlo.constant\"() {value = dense<4294967294> : tensor<ui32>} : () -> "
            "tensor<ui32>\n"
            "%4 = \"stablehlo.constant\"() {value = dense<18446744073709551615> : tensor<ui64>} : "
            "() -> tensor<ui64>\n"
            "%5 = \"stablehlo.constant\"() {value = dense<0x003C> : tensor<f16>} : () -> "
            "tensor<f16>\n"
            "%6 = \"stablehlo.constant\"() {value = dense<0x3F80> : tensor<bf16>} : () -> "
            "tensor<bf16>\n"
            "%7 = \"stablehlo.constant\"() {value = dense<0x80000000> : tensor<f32>} : () -> "
            "tensor<f32>\n");
}

TEST(StablehloText, SameProgramSameBytes) {
  const auto text = [](int32_t steps) {
    Program program;
    Builder b(program);
    const Value x = b.argument({Element::kF32, {2}});
    b.result(b.loop(
        {b.constant(0), x},
        [&](auto c) { return std::vector{b.compare(Comparison::kLt, c[0], b.constant(steps))}; },
        [&](auto c) {
          return std::vector{b.add(c[0], b.constant(1)), b.multiply(c[1], x)};
        })[1]);
    return stablehlo_text(program);
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

}  // namespace
}  // namespace adder::xla
