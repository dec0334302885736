// The decode loop: many steps as one program, a `while` around the step that is recorded.
#pragma once

#include <memory>

#include "backends/xla/recorder.h"
#include "kernels/decode_loop.h"

namespace adder::xla {

class XlaBackend;

// One run of the program is at most so many steps; the host reads their ids afterwards.
inline constexpr int64_t kDecodeSteps = 16;

// A step of so many rows. Its first two arguments are the tokens and the slots.
struct CapturedStep {
  Recorder::Capture step;
  Ref logits = kNoRef;
  int64_t vocab = 0;
};
// Throws what the step throws.
CapturedStep capture_step(XlaBackend& backend, int64_t rows, int64_t vocab_limit,
                          const DecodeStep& step);

// Steps are run together when the first one of them is read. Throws what the step throws.
std::unique_ptr<DecodeLoop> make_decode_loop(XlaBackend& backend, int64_t rows, int64_t vocab_limit,
                                             const DecodeStep& step);

}  // namespace adder::xla
