// A model as programs of StableHLO with its weights, for other runtimes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace adder {

struct StablehloExportOptions {
  // Tokens that a prefill program takes, each at least 2; rounded up to 4, 16, 32, 64, ...
  std::vector<int64_t> blocks{16, 64, 256};
  int32_t batch = 1;                                      // rows of step and generate, and slots
  std::function<void(const std::string& what)> progress;  // may be empty
};

struct ExportedFile {
  std::string name;
  uint64_t bytes = 0;
};

// Writes the folder `target`, which must be new or empty and appears whole or not at all:
//   prefill_N.mlir       up to N tokens of one sequence; the logits of one of them, the state after
//   step.mlir            a token of each sequence; their logits, the states after
//   generate.mlir        up to 16 greedy steps, as the XLA backend's decode loop
//   weights.safetensors  in the layout of the programs' arguments, under the names of
//   model/weights.h manifest.json        for each program its arguments and results in order run.py
//   generates greedily with the programs through Python's jaxlib
// Nothing is run, and no plugin is needed. Throws Error(kBadInput) for an existing target and for
// blocks and batches out of range, Error(kUnsupported) for quantized weights, Error(kIo).
std::vector<ExportedFile> export_stablehlo(const std::shared_ptr<const Checkpoint>& checkpoint,
                                           const std::string& target,
                                           const StablehloExportOptions& options);

// The text of run.py.
extern const char* const kStablehloRunScript;

}  // namespace adder
