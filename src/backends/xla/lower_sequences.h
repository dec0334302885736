// What the operations with a state have in common: packed batches, slots and padding.
//
// Three forms, so that few programs are compiled and the common ones are fast:
//   kStep    every sequence has one row; which slots is an argument, -1 among them, so that any
//            batch of the size is the same program. Their states are gathered and put back.
//   kSingle  one sequence; its length is an argument, rows beyond it are padding.
//   kPacked  anything else: where sequences begin is part of the program. Each one is computed as
//            it would be alone, which is what keeps its bits.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backends/xla/builder.h"
#include "kernels/batch.h"

namespace adder::xla {

enum class SequenceForm : int64_t { kStep, kSingle, kPacked };
SequenceForm sequence_form(const PackedBatch& batch);
// The form, then for each sequence its length and whether it has a slot. Appends to `attributes`.
void describe_sequences(const PackedBatch& batch, std::vector<int64_t>& attributes);

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
// elements); slots: i32; valid: scalar i32, of kSingle. Gives out and the new state.
std::vector<Value> lower_sequences(Builder& b, std::span<const int64_t> description,
                                   const std::vector<Value>& rows, Value state, Value slots,
                                   Value valid, const SequenceOp& op);

// Whether row i of (rows) counts: i < valid, as (rows) pred.
Value valid_rows(Builder& b, int64_t rows, Value valid);

}  // namespace adder::xla
