#include "measure/tuner.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "engine/generator.h"
#include "kernels/ssd_scan.h"

namespace adder {
namespace {

// Every block gives the same bits.
static_assert(std::all_of(std::begin(kTunedBlocks), std::end(kTunedBlocks),
                          [](int64_t block) { return block % kSsdChunkAlign == 0; }));

constexpr int kMinRounds = 2, kWantedRounds = 4, kMaxRounds = 12;
constexpr double kNoise = 0.02;

const BlockTime& entry_of(const std::vector<BlockTime>& blocks, int64_t block) {
  return *std::find_if(blocks.begin(), blocks.end(),
                       [&](const BlockTime& b) { return b.block == block; });
}

double median_of(const BlockTime& b) {
  return spread_of(b.seconds).median;
}

class Tuner {
 public:
  Tuner(Engine& engine, const TuneOptions& options) : engine_(engine), o_(options) {}

  TuneResult run() {
    const double begin = seconds_now();
    choose_prompt();
    for (const int64_t block : kTunedBlocks) {
      if (block <= result_.prompt || block == kDefaultBlock) result_.blocks.push_back({block, {}});
    }
    // Two thirds of the time for all blocks, the rest for the winner and the default.
    rounds(result_.blocks, begin + o_.budget_s * 2 / 3);
    result_.best = winning_block(result_.blocks);
    if (result_.best != kDefaultBlock) {
      std::vector<BlockTime> finalists = {{kDefaultBlock, {}}, {result_.best, {}}};
      rounds(finalists, begin + o_.budget_s);
      result_.best = winning_block(finalists);
      if (result_.best != kDefaultBlock) {
        result_.gain = 1 - median_of(finalists[1]) / median_of(finalists[0]);
      }
    }
    engine_.set_block(result_.best);
    return std::move(result_);
  }

 private:
  // As long as the time allows, so that large blocks can show what they are worth. The first run
  // also brings memory and threads to life.
  void choose_prompt() {
    prompt(kSsdChunkAlign, kSsdChunkAlign);
    const double per_token = prompt(kSsdChunkAlign, kSsdChunkAlign) / kSsdChunkAlign;
    constexpr double kRuns = 1.5 * kWantedRounds * static_cast<double>(std::size(kTunedBlocks));
    const auto affordable = static_cast<int64_t>(o_.budget_s / (kRuns * per_token));
    const int64_t longest = *std::max_element(std::begin(kTunedBlocks), std::end(kTunedBlocks));
    result_.prompt = std::clamp(affordable / kSsdChunkAlign, int64_t{2}, longest / kSsdChunkAlign) *
                     kSsdChunkAlign;
  }

  // Until the time is over, but at least kMinRounds and at most kMaxRounds.
  void rounds(std::vector<BlockTime>& blocks, double until) {
    for (int round = 0; round < kMaxRounds; ++round) {
      const bool late = seconds_now() > until;
      if (late && round >= kMinRounds) break;
      for (BlockTime& b : blocks) {
        if (o_.progress) o_.progress(fmt::format("round {}: block {}", round + 1, b.block));
        b.seconds.push_back(prompt(result_.prompt, b.block));
      }
    }
  }

  double prompt(int64_t tokens, int64_t block) {
    engine_.set_block(block);
    Conversation conversation;
    GenerationRequest request;
    const auto ids = static_cast<uint64_t>(engine_.vocab_limit());
    for (int64_t i = 0; i < tokens; ++i) {
      request.prompt.push_back(static_cast<int32_t>(mix64(static_cast<uint64_t>(i)) % ids));
    }
    request.max_tokens = 0;
    request.conversation = &conversation;
    request.cancel = o_.cancel;
    const double begin = seconds_now();
    generate(engine_, request);
    const double took = seconds_now() - begin;
    if (o_.cancel != nullptr && o_.cancel->load()) bad_input("tune: interrupted");
    return took;
  }

  Engine& engine_;
  const TuneOptions& o_;
  TuneResult result_;
};

}  // namespace

int64_t winning_block(const std::vector<BlockTime>& blocks) {
  const BlockTime& standard = entry_of(blocks, kDefaultBlock);
  const BlockTime& best = *std::min_element(
      blocks.begin(), blocks.end(),
      [](const BlockTime& a, const BlockTime& b) { return median_of(a) < median_of(b); });
  size_t won = 0;
  for (size_t i = 0; i < best.seconds.size(); ++i) won += best.seconds[i] < standard.seconds[i];
  const bool clearly = median_of(best) < (1 - kNoise) * median_of(standard);
  return clearly && 4 * won >= 3 * best.seconds.size() ? best.block : kDefaultBlock;
}

TuneResult tune_block(Engine& engine, const TuneOptions& options) {
  return Tuner(engine, options).run();
}

}  // namespace adder
