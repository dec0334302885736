#include "backends/xla/lower.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace adder::xla {

float Lowering::real(size_t attribute) const {
  return std::bit_cast<float>(static_cast<uint32_t>(attributes[attribute]));
}

int64_t real_attribute(float value) {
  return static_cast<int64_t>(std::bit_cast<uint32_t>(value));
}

std::vector<TapeArgument> tape_arguments(std::span<const int64_t> tape) {
  std::vector<TapeArgument> arguments;
  Ref next = 0;
  for (size_t at = 0; at < tape.size();) {
    const TapeEntry entry = read_tape(tape, at, next);
    if (entry.op != TapeOp::kArgument) continue;
    const auto shape = entry.attributes.subspan(1);
    arguments.push_back(
        {entry.first, {static_cast<Element>(entry.attributes[0]), {shape.begin(), shape.end()}}});
  }
  return arguments;
}

namespace {

std::vector<Value> lower_entry(TapeOp op, const Lowering& l) {
  switch (op) {
    case TapeOp::kArgument:
      break;
    case TapeOp::kZeros:
    case TapeOp::kResizeRows:
    case TapeOp::kRectangle:
    case TapeOp::kFlatten:
    case TapeOp::kExtract:
    case TapeOp::kSliceAt:
    case TapeOp::kUpdateAt:
      return lower_values(op, l);
    case TapeOp::kEmbedding:
    case TapeOp::kGatherRows:
    case TapeOp::kMatmul:
      return lower_rows(op, l);
    case TapeOp::kRmsNorm:
    case TapeOp::kGatedNorm:
      return lower_norm(op, l);
    case TapeOp::kConv:
      return lower_conv(l);
    case TapeOp::kSelective:
      return lower_selective_scan(l);
    case TapeOp::kSsd:
      return lower_ssd(l);
    case TapeOp::kSample:
      return lower_sample(l);
  }
  fail(ErrorCode::kInternal, "xla: no operation {} on a tape", static_cast<int>(op));
}

}  // namespace

void lower_tape(Builder& b, std::span<const int64_t> tape, std::vector<Value>& values) {
  Ref next = 0;
  std::vector<Value> in;
  for (size_t at = 0; at < tape.size();) {
    const TapeEntry entry = read_tape(tape, at, next);
    values.resize(std::max(values.size(), static_cast<size_t>(next)), kNoValue);
    if (entry.op == TapeOp::kArgument) continue;
    in.clear();
    for (const int64_t ref : entry.operands)
      in.push_back(ref == kNoRef ? kNoValue : values[static_cast<size_t>(ref)]);
    const std::vector<Value> out = lower_entry(entry.op, {b, in, entry.attributes});
    if (std::ssize(out) != entry.results)
      fail(ErrorCode::kInternal, "xla: operation {}: expected {} values, got {}",
           static_cast<int>(entry.op), entry.results, out.size());
    std::copy(out.begin(), out.end(), values.begin() + entry.first);
  }
}

Program lower_program(std::span<const int64_t> tape, std::span<const Ref> outputs,
                      std::span<const int32_t> donated) {
  Program program;
  Builder b(program);
  std::vector<Value> values;
  for (const TapeArgument& a : tape_arguments(tape)) {
    values.resize(std::max(values.size(), static_cast<size_t>(a.ref) + 1), kNoValue);
    values[static_cast<size_t>(a.ref)] = b.argument(a.type);
  }
  lower_tape(b, tape, values);
  for (size_t i = 0; i < outputs.size(); ++i)
    b.result(values[static_cast<size_t>(outputs[i])], donated[i]);
  return program;
}

}  // namespace adder::xla
