// What the operations with a state have in common: packed batches, slots and padding.
//
// Three forms, so that few programs are compiled and the common ones are fast:
//   kStep    every sequence has one row; which slots is an argument, -1 among them, so that any
//            batch of the size is the same program. Their states are gathered and put back.
//   kSingle  one sequence; its length is an argument, rows beyond it are padding.
//   kPacked  anything else, such as prompts beside sequences that generate. How many sequences of
//            one row there are, and the sizes of the others, both padded, are the program; where
//            they lie, their lengths and slots are an argument. Each is computed as it would be
//            alone, which is what keeps its bits.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backends/xla/builder.h"
#include "kernels/batch.h"

namespace adder::xla {

enum class SequenceForm : int64_t { kStep, kSingle, kPacked };
SequenceForm sequence_form(const PackedBatch& batch);
// The form; of kPacked also the padded number of sequences of one row and the padded length of each
// other one. Appends to `attributes`.
void describe_sequences(const PackedBatch& batch, std::vector<int64_t>& attributes);
// The argument `slots`: of kStep and kSingle the slots; of kPacked the rows and then the slots of
// the sequences of one row, then begin, length and slot of each other one. `rows`: of the operands.
void place_sequences(const PackedBatch& batch, int64_t rows, std::vector<int32_t>& slots);

struct SequenceOp {
  struct Result {
    Value out, state;
  };
  // One row of each of B sequences: rows (B, width) and states (B, elements).
  std::function<Result(const std::vector<Value>& rows, Value states)> step;
  // Rows of one sequence, of which `valid` (scalar i32) count: (L, width), state (1, elements).
  std::function<Result(const std::vector<Value>& rows, Value state, Value valid)> many;
};

// rows: operands with one row per token, kNoValue where they are not given; state: (slots,
// elements); slots: of place_sequences; valid: scalar i32, of kSingle. Gives out and the new state.
std::vector<Value> lower_sequences(Builder& b, std::span<const int64_t> description,
                                   const std::vector<Value>& rows, Value state, Value slots,
                                   Value valid, const SequenceOp& op);

// Whether row i of (rows) counts: i < valid, as (rows) pred.
Value valid_rows(Builder& b, int64_t rows, Value valid);

}  // namespace adder::xla
