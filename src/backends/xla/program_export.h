// Programs for somebody else to run: their text, and what their arguments and results are.
#pragma once

#include <functional>

#include "backends/registry.h"
#include "backends/xla/xla_backend.h"

namespace adder::xla {

// As adder::export_step and adder::export_decode_loop (backends/registry.h).
ExportedProgram export_step(XlaBackend& backend, const std::function<Tensor()>& step);
ExportedProgram export_decode_loop(XlaBackend& backend, int64_t rows, int64_t vocab_limit,
                                   int64_t stop_ids, bool greedy, const DecodeStep& step);

}  // namespace adder::xla
