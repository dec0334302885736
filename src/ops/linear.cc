#include "ops/linear.h"

#include <algorithm>

#include "ops/runtime.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

// Outputs and rows of a task: its packed weights serve all rows, and its rows all of its outputs.
constexpr int64_t kOutputs = 128, kRows = 64;

}  // namespace

void linear(const LinearArgs& a) {
  const int64_t batch = a.x.dim(0), rows = a.x.dim(1), in = a.x.dim(2), outputs = a.weight.dim(0);
  const int64_t blocks = (outputs + kOutputs - 1) / kOutputs;
  run_tasks(blocks, batch * rows * in * kOutputs / 4, [&](int64_t task) {
    const int64_t n0 = task * kOutputs, count = std::min(kOutputs, outputs - n0);
    const int64_t piece = std::min(kRows, rows);
    Scratch scratch(Scratch::padded(count * in) + Scratch::padded(count) +
                    Scratch::padded(piece * in) + Scratch::padded(piece * count));
    Backend& backend = local_backend();
    Buffer owner;
    adder::MatmulArgs args;
    args.weight =
        backend.import_weight(load_rows(a.weight.slice(0, n0, count), scratch.take(count * in)),
                              WeightUse::kMatmul, &owner);
    float* bias = scratch.take(count);
    if (a.bias) args.bias = load_vector(a.bias.slice(0, n0, count), bias);
    float* x = scratch.take(piece * in);
    float* out = scratch.take(piece * count);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t0 = 0; t0 < rows; t0 += kRows) {
        const int64_t length = std::min(kRows, rows - t0);
        args.x = load_rows(a.x.select(0, b).slice(0, t0, length), x);
        const ArrayView to = a.out.select(0, b).slice(0, t0, length).slice(1, n0, count);
        args.out = output_rows(to, out);
        backend.matmul(args);
        flush(args.out, to);
      }
    }
  });
}

}  // namespace adder::ops
