// Running a model once for the shapes that are to come, on a device that compiles a program for
// each, so that whoever asks next does not wait for the compiler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/generator.h"

namespace adder {

struct PrecompileOptions {
  std::vector<int64_t> lengths;     // of prompts, in tokens
  std::vector<int32_t> batches{1};  // sequences that run together
  // Greedy sampling, drawing, and either with a repeat penalty are programs of their own.
  SamplingOptions sampling;
  std::function<void(const std::string& what)> progress;  // may be empty
  const std::atomic<bool>* cancel = nullptr;
};

enum class PrecompiledPart {
  kPrompt,  // of `length` tokens in the engine's blocks, and the choice of the first token;
            // `batch` of them: the blocks of one beside the others that generate already
  kStep,    // a token for each of `batch` sequences, and the choice of the next ones
  kLoop     // many of those steps in the backend's decode loop
};
std::string_view precompiled_part_name(PrecompiledPart part);  // "prompt", "step", "loop"

struct Precompiled {
  PrecompiledPart part;
  int64_t length = 0;
  int32_t batch = 1;
  int64_t compiled = 0, from_cache = 0, on_disk = 0;  // programs, as ProgramCounts
  double seconds = 0;                                 // the run included
};

// Throws Error(kUnsupported) for the name of a device that compiles no programs.
void check_precompiles(std::string_view device);

// Programs also depend on what ran before, so the engine is renewed for each prompt, alone and in
// each larger batch, and the prompt is fed twice, as the first one and as a later one. Steps and
// loops come last, no loop where the backend has none. The parts are in the order in which they
// ran; each counts the programs that none before it needed. Throws Error(kBadInput) for no length
// or one below 1, a batch that does not fit the engine's slots, and when the cancel flag was set;
// Error(kUnsupported) as check_precompiles(); and what the engine throws.
std::vector<Precompiled> precompile(Engine& engine, const PrecompileOptions& options);

}  // namespace adder
