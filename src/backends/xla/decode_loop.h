// The decode loop: many steps as one program, a `while` around the step that is recorded.
#pragma once

#include <memory>

#include "kernels/decode_loop.h"

namespace adder::xla {

class XlaBackend;

// Steps are run together when the first one of them is read. Throws what the step throws.
std::unique_ptr<DecodeLoop> make_decode_loop(XlaBackend& backend, int64_t rows, int64_t vocab_limit,
                                             const DecodeStep& step);

}  // namespace adder::xla
