// From what was recorded to StableHLO: one file for each group of operations. Each of them is also
// the description of the operation in terms of StableHLO's.
#pragma once

#include <span>
#include <vector>

#include "backends/xla/builder.h"
#include "backends/xla/tape.h"

namespace adder::xla {

// A program of the whole tape. outputs: its results; donated: for each of them the argument whose
// memory it takes over, or -1.
Program lower_program(std::span<const int64_t> tape, std::span<const Ref> outputs,
                      std::span<const int32_t> donated);

// The operations of a tape, in the innermost open block. values: those of its arguments are there
// already, and the others are filled in.
void lower_tape(Builder& b, std::span<const int64_t> tape, std::vector<Value>& values);
// The types of a tape's arguments and their numbers as values.
struct TapeArgument {
  Ref ref;
  Type type;
};
std::vector<TapeArgument> tape_arguments(std::span<const int64_t> tape);

// What an operation is lowered from.
struct Lowering {
  Builder& b;
  std::span<const Value> in;  // kNoValue: not given
  std::span<const int64_t> attributes;

  bool has(size_t operand) const { return in[operand] != kNoValue; }
  int64_t rows(size_t operand) const { return b.type(in[operand]).shape[0]; }
  int64_t cols(size_t operand) const { return b.type(in[operand]).shape[1]; }
  float real(size_t attribute) const;
  bool flag(size_t attribute) const { return attributes[attribute] != 0; }
};
int64_t real_attribute(float value);

std::vector<Value> lower_values(TapeOp op, const Lowering& l);
std::vector<Value> lower_norm(TapeOp op, const Lowering& l);
std::vector<Value> lower_rows(TapeOp op, const Lowering& l);  // matmul, embedding, gather_rows
std::vector<Value> lower_conv(const Lowering& l);
std::vector<Value> lower_selective_scan(const Lowering& l);
std::vector<Value> lower_ssd(const Lowering& l);
std::vector<Value> lower_sample(const Lowering& l);

}  // namespace adder::xla
