// Chooses the prefill block of a model on this machine by measuring.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "measure/statistics.h"

namespace adder {

struct TuneOptions {
  double budget_s = 40;                              // time for all measurements, about
  std::function<void(const std::string&)> progress;  // may be empty
  const std::atomic<bool>* cancel = nullptr;
};

struct BlockTime {
  int64_t block;
  std::vector<double> seconds;  // one for each round
};

struct TuneResult {
  int64_t prompt = 0;             // tokens of each measurement
  std::vector<BlockTime> blocks;  // kDefaultBlock is one of them
  int64_t best = 0;               // kDefaultBlock unless another one is faster beyond the noise
  double gain = 0;                // of the prompt's time, against the default; 0 for the default
};

// Blocks that are tried, up to the block that the engine must be made with.
inline constexpr int64_t kTunedBlocks[] = {64, 128, 256, 512, 1024};
inline constexpr int64_t kLargestTunedBlock = 1024;

// Measures all blocks in turn, again and again, then the fastest against the default alone. Leaves
// the engine's block at the best. Throws Error(kBadInput) when the cancel flag was set.
TuneResult tune_block(Engine& engine, const TuneOptions& options);

// The block that has won: the fastest by the median if it beats the default by more than 2 % and in
// at least three rounds of four; else the default. All blocks have the same number of rounds.
int64_t winning_block(const std::vector<BlockTime>& blocks);

}  // namespace adder
