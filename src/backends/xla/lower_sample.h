// Choosing ids, in sample and in the decode loop alike.
#pragma once

#include <cstdint>

#include "backends/xla/builder.h"
#include "kernels/sample.h"

namespace adder::xla {

// Options of R rows, each (R).
struct SampleValues {
  Value penalised = kNoValue;  // (R, vocab_limit) pred: the ids of `recent`; may be missing
  Value penalty = kNoValue;    // f32, with `penalised`
  // Missing where every row is greedy, and the whole of what they are for is left out.
  Value temperature = kNoValue, min_p = kNoValue;  // f32
  Value top_k = kNoValue;                          // i32; all: the vocabulary
  Value top_p = kNoValue, uniform = kNoValue;      // u64, in units of 2^-32
};

// (R) i32: the id of each row of logits (R, vocab), or kDecodeNotFinite.
//
// Weights are float32, exp((logit - largest) / temperature). From there on they are counted in
// units of 2^-40 in 64-bit integers: sums have no order, and their thresholds no rounding.
Value choose_ids(Builder& b, Value logits, int64_t vocab_limit, const SampleValues& options);

uint64_t in_units(float fraction);  // of 2^-32

}  // namespace adder::xla
