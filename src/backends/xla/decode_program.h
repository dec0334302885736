// generate(N): the program of the decode loop.
#pragma once

#include <span>

#include "backends/xla/recorder.h"

namespace adder::xla {

// What distinguishes the programs of one recorded step.
struct DecodeShape {
  int64_t rows = 0, steps = 0, vocab_limit = 0;
  int64_t stop_ids = 0;  // of a row, at most
  int64_t recent = 0;    // ids that count for the repeat penalty, at most; 0: nothing is penalised
  bool draws = false;    // not every row is greedy
};

// The arguments, in this order, and behind them those of the step (tape_arguments) without the
// tokens and the slots, which are its first two. Vectors have an entry per row.
//   steps            scalar i32: at most so many
//   kept between runs, also the first results:
//     token, slot, remaining (i32), index (u64)
//     with `recent`: ring (rows, recent) i32, place in it i32, counts (rows, vocab_limit) i32
//   stop             (rows, stop_ids) i32, filled up with -1
//   with `recent`:   penalty f32, ring length i32
//   with `draws`:    temperature f32, min_p f32, top_k i32, top_p u64, seed u64
// Results: those kept; the chosen ids (steps, rows) i32, kDecodeInert where nothing was chosen; the
// states, each in the memory of its argument.
int64_t kept_values(const DecodeShape& shape);
Program decode_program(const DecodeShape& shape, const Recorder::Capture& step, Ref logits);

}  // namespace adder::xla
