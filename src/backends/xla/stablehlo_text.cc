// Programs as text, in MLIR's generic form: it has no sugar that changes between versions. Inherent
// attributes stand in the dictionary behind the operands, which old and new parsers read.
#include <iterator>
#include <string>
#include <string_view>

#include "backends/xla/program.h"
#include "core/error.h"

namespace adder::xla {
namespace {

std::string integer_list(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

std::string integer_array(const std::vector<int64_t>& values) {
  if (values.empty()) return "array<i64>";
  return fmt::format("array<i64: {}>", fmt::join(values, ", "));
}

std::string type_list(const std::vector<Type>& types) {
  std::vector<std::string> texts;
  texts.reserve(types.size());
  for (const Type& type : types) texts.push_back(type_text(type));
  return fmt::format("({})", fmt::join(texts, ", "));
}

std::string value_list(const std::vector<Value>& values) {
  std::string text;
  for (const Value v : values) text += fmt::format("{}%{}", text.empty() ? "" : ", ", v);
  return text;
}

std::string constant_text(Element element, uint64_t bits) {
  switch (element) {
    case Element::kPred:
      return bits ? "true" : "false";
    case Element::kI8:
      return fmt::format("{}", static_cast<int8_t>(bits));
    case Element::kI32:
      return fmt::format("{}", static_cast<int32_t>(bits));
    case Element::kU32:
    case Element::kU64:
      return fmt::format("{}", bits);
    case Element::kF16:
    case Element::kBF16:
      return fmt::format("0x{:04X}", bits);
    case Element::kF32:
      return fmt::format("0x{:08X}", bits);
  }
  fail(ErrorCode::kInternal, "xla program: no element {}", static_cast<int>(element));
}

std::string_view comparison_text(Comparison comparison) {
  constexpr std::string_view kNames[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  return kNames[static_cast<size_t>(comparison)];
}

std::string_view reducer_text(Reducer reducer) {
  constexpr std::string_view kNames[] = {"stablehlo.add", "stablehlo.maximum", "stablehlo.minimum",
                                         "stablehlo.and", "stablehlo.or"};
  return kNames[static_cast<size_t>(reducer)];
}

class TextWriter {
 public:
  explicit TextWriter(const Program& program) : program_(program) {}

  std::string write() {
    line("\"builtin.module\"() ({{");
    line("  \"func.func\"() ({{");
    depth_ = 2;
    block(program_.main, "func.return");
    depth_ = 0;
    const std::string results = type_list(types(program_.main.results));
    line(
        "  }}) {{sym_name = \"main\", sym_visibility = \"public\", function_type = {} -> {}{}}} : "
        "() -> ()",
        type_list(types(program_.main.arguments)), results, aliases());
    line("}}) : () -> ()");
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(2 * depth_, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  std::vector<Type> types(const std::vector<Value>& values) const {
    std::vector<Type> list;
    list.reserve(values.size());
    for (const Value v : values) list.push_back(program_.types[v]);
    return list;
  }

  // Which result takes over the memory of an argument.
  std::string aliases() const {
    std::vector<std::string> attributes(program_.main.arguments.size(), "{}");
    bool any = false;
    for (size_t i = 0; i < program_.donated.size(); ++i) {
      if (program_.donated[i] < 0) continue;
      attributes[static_cast<size_t>(program_.donated[i])] =
          fmt::format("{{tf.aliasing_output = {} : i32}}", i);
      any = true;
    }
    return any ? fmt::format(", arg_attrs = [{}]", fmt::join(attributes, ", ")) : "";
  }

  void block(const Block& block, std::string_view terminator) {
    std::string arguments;
    for (const Value v : block.arguments)
      arguments +=
          fmt::format("{}%{}: {}", arguments.empty() ? "" : ", ", v, type_text(program_.types[v]));
    --depth_;
    line("^bb0({}):", arguments);
    ++depth_;
    for (const Op& op : block.ops) operation(op);
    line("\"{}\"({}) : {} -> ()", terminator, value_list(block.results),
         type_list(types(block.results)));
  }

  void operation(const Op& op) {
    const std::string head = fmt::format("{} = \"{}\"({})", value_list(op.results),
                                         opcode_name(op.code), value_list(op.operands));
    const std::vector<Type> results = types(op.results);
    const std::string tail =
        fmt::format("{}{} -> {}", attributes(op), type_list(types(op.operands)),
                    results.size() == 1 ? type_text(results[0]) : type_list(results));
    if (op.code != Opcode::kWhile && op.code != Opcode::kReduce && op.code != Opcode::kSort)
      return line("{}{}", head, tail);
    line("{} ({{", head);
    ++depth_;
    if (op.code == Opcode::kReduce) {
      reducer(op);
    } else if (op.code == Opcode::kSort) {
      comparator(op);
    } else {
      block(op.regions[0], "stablehlo.return");
      --depth_;
      line("}}, {{");
      ++depth_;
      block(op.regions[1], "stablehlo.return");
    }
    --depth_;
    line("}}){}", tail);
  }

  void reducer(const Op& op) {
    const std::string type = type_text({program_.types[op.operands[0]].element, {}});
    --depth_;
    line("^bb0(%lhs: {0}, %rhs: {0}):", type);
    ++depth_;
    line("%both = \"{0}\"(%lhs, %rhs) : ({1}, {1}) -> {1}", reducer_text(op.reducer), type);
    line("\"stablehlo.return\"(%both) : ({}) -> ()", type);
  }

  // The left element goes first where it is larger, or where the right one alone is NaN.
  void comparator(const Op& op) {
    std::string arguments = "%lhs: tensor<f32>, %rhs: tensor<f32>";
    for (size_t i = 1; i < op.operands.size(); ++i)
      arguments += fmt::format(", %lhs{0}: tensor<i32>, %rhs{0}: tensor<i32>", i);
    const auto compare = [&](std::string_view name, std::string_view operands, Comparison c) {
      line(
          "%{} = \"stablehlo.compare\"({}) {{comparison_direction = "
          "#stablehlo<comparison_direction {}>}} : (tensor<f32>, tensor<f32>) -> tensor<i1>",
          name, operands, comparison_text(c));
    };
    const auto join = [&](std::string_view name, std::string_view code, std::string_view operands) {
      line("%{} = \"{}\"({}) : (tensor<i1>, tensor<i1>) -> tensor<i1>", name, code, operands);
    };
    --depth_;
    line("^bb0({}):", arguments);
    ++depth_;
    compare("larger", "%lhs, %rhs", Comparison::kGt);
    compare("number", "%lhs, %lhs", Comparison::kEq);
    compare("nan", "%rhs, %rhs", Comparison::kNe);
    join("last", "stablehlo.and", "%number, %nan");
    join("before", "stablehlo.or", "%larger, %last");
    line("\"stablehlo.return\"(%before) : (tensor<i1>) -> ()");
  }

  // With the colon that follows it.
  std::string attributes(const Op& op) const {
    const std::string inner = dictionary(op);
    return inner.empty() ? " : " : fmt::format(" {{{}}} : ", inner);
  }

  std::string dictionary(const Op& op) const {
    switch (op.code) {
      case Opcode::kConstant: {
        const Type& type = program_.types[op.results[0]];
        return fmt::format("value = dense<{}> : {}", constant_text(type.element, op.payload),
                           type_text(type));
      }
      case Opcode::kIota:
        return fmt::format("iota_dimension = {} : i64", op.axis);
      case Opcode::kTranspose:
        return fmt::format("permutation = {}", integer_array(op.dims));
      case Opcode::kBroadcastInDim:
        return fmt::format("broadcast_dimensions = {}", integer_array(op.dims));
      case Opcode::kSlice:
        return fmt::format("start_indices = {}, limit_indices = {}, strides = {}",
                           integer_array(op.starts), integer_array(op.limits),
                           integer_array(std::vector<int64_t>(op.starts.size(), 1)));
      case Opcode::kDynamicSlice:
        return fmt::format("slice_sizes = {}", integer_array(op.dims));
      case Opcode::kConcatenate:
        return fmt::format("dimension = {} : i64", op.axis);
      case Opcode::kPad:
        return fmt::format("edge_padding_low = {}, edge_padding_high = {}, interior_padding = {}",
                           integer_array(op.starts), integer_array(op.limits),
                           integer_array(std::vector<int64_t>(op.starts.size(), 0)));
      case Opcode::kGatherRows: {
        std::vector<int64_t> sizes = program_.types[op.operands[0]].shape, offsets;
        sizes[0] = 1;
        for (size_t i = 1; i < sizes.size(); ++i) offsets.push_back(static_cast<int64_t>(i));
        return fmt::format(
            "dimension_numbers = #stablehlo.gather<{}collapsed_slice_dims = [0], "
            "start_index_map = [0], index_vector_dim = 1>, slice_sizes = {}, "
            "indices_are_sorted = false",
            offsets.empty() ? "" : fmt::format("offset_dims = {}, ", integer_list(offsets)),
            integer_array(sizes));
      }
      case Opcode::kDotGeneral:
        return product_dictionary(op);
      case Opcode::kCompare:
        return fmt::format("comparison_direction = #stablehlo<comparison_direction {}>",
                           comparison_text(op.compare));
      case Opcode::kReduce:
        return fmt::format("dimensions = {}", integer_array(op.dims));
      case Opcode::kSort:
        return fmt::format("dimension = {} : i64, is_stable = true", op.axis);
      default:
        return "";
    }
  }

  std::string product_dictionary(const Op& op) const {
    std::string batch;
    if (!op.dot.lhs_batch.empty())
      batch = fmt::format("lhs_batching_dimensions = {}, rhs_batching_dimensions = {}, ",
                          integer_list(op.dot.lhs_batch), integer_list(op.dot.rhs_batch));
    const std::string_view precision = op.precision == Precision::kHighest ? "HIGHEST" : "DEFAULT";
    return fmt::format(
        "dot_dimension_numbers = #stablehlo.dot<{0}lhs_contracting_dimensions = {1}, "
        "rhs_contracting_dimensions = {2}>, precision_config = [#stablehlo<precision {3}>, "
        "#stablehlo<precision {3}>]",
        batch, integer_list(op.dot.lhs_contract), integer_list(op.dot.rhs_contract), precision);
  }

  const Program& program_;
  std::string text_;
  size_t depth_ = 0;
};

}  // namespace

std::string stablehlo_text(const Program& program) {
  return TextWriter(program).write();
}

}  // namespace adder::xla
