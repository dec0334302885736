#include "engine/continuation_scoring.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "engine/scoring.h"

namespace adder {
namespace {

// A step costs about as much as this many tokens in a larger one: it reads all weights.
constexpr int64_t kStepTokens = 32;

class ContinuationRun {
 public:
  ContinuationRun(Engine& engine, std::span<const ContinuationRequest> requests,
                  const std::function<void()>& pause)
      : engine_(engine),
        requests_(requests),
        pause_(pause),
        align_(engine.config().mixer == MixerKind::kMamba1 ? 1 : kSsdChunkAlign),
        scores_(requests.size()) {}

  std::vector<ContinuationScore> run() {
    for (size_t i = 0; i < requests_.size();) {
      const size_t end = same_context_end(i);
      const int64_t shared = shared_length(i, end);
      if (shared > 0) {
        run_shared(i, end, shared);
        i = end;
      } else if (!fits_a_step(i, 0)) {
        StateHandle state = engine_.states().acquire();
        feed_rest(i, state, 0);
        ++i;
      } else {
        i = run_packed(i, requests_.size(), StateHandle(), 0);
      }
    }
    return std::move(scores_);
  }

 private:
  struct Place {
    size_t request;
    int64_t position;  // of the token whose logits are wanted
  };

  std::span<const int32_t> tokens(size_t i) const { return requests_[i].tokens; }
  std::span<const int32_t> context(size_t i) const {
    return tokens(i).first(static_cast<size_t>(requests_[i].context));
  }
  // The last token is only predicted, never fed.
  int64_t fed(size_t i) const { return static_cast<int64_t>(tokens(i).size()) - 1; }

  size_t same_context_end(size_t begin) const {
    size_t end = begin + 1;
    while (end < requests_.size() && std::ranges::equal(context(end), context(begin))) ++end;
    return end;
  }

  // How many tokens requests [begin, end) of one context have in common up to a place where a text
  // can be cut without changing a bit; 0 where they are not worth steps of their own.
  int64_t shared_length(size_t begin, size_t end) const {
    const int64_t last = requests_[begin].context - 1;  // its logits belong to the continuation
    const int64_t length = last - last % engine_.block() % align_;
    return length * static_cast<int64_t>(end - begin - 1) > kStepTokens ? length : 0;
  }

  // Whether the tokens of a request from `from` on are one piece: next_token_nll() would cut them
  // at multiples of the block.
  bool fits_a_step(size_t i, int64_t from) const {
    const int64_t block = engine_.block();
    return fed(i) - from <= block && (block % align_ == 0 || from / block == (fed(i) - 1) / block);
  }

  void run_shared(size_t begin, size_t end, int64_t shared) {
    StateHandle trunk = engine_.states().acquire();
    feed(begin, trunk, 0, shared);
    std::vector<std::byte> saved;
    for (size_t i = begin; i < end;) {
      if (fits_a_step(i, shared) && engine_.states().free_slots() > 0) {
        i = run_packed(i, end, trunk, shared);
        continue;
      }
      // On the one slot that may be held.
      if (i + 1 < end && saved.empty()) {
        saved.resize(engine_.states().snapshot_bytes());
        engine_.states().snapshot(trunk, saved);
      }
      feed_rest(i, trunk, shared);
      if (++i < end) engine_.states().restore(trunk, saved);
    }
  }

  // One step for as many requests of [begin, end) as there is room for, each from `from` on behind
  // a copy of `trunk`, which may be empty for none. Returns the first that it has left.
  size_t run_packed(size_t begin, size_t end, const StateHandle& trunk, int64_t from) {
    std::vector<StateHandle> states;
    std::vector<Place> places;
    std::vector<int32_t> rows;
    const auto slots = static_cast<size_t>(engine_.states().free_slots());
    int64_t used = 0;
    size_t i = begin;
    for (; i < end && states.size() < slots && fits_a_step(i, from); ++i) {
      if (used + fed(i) - from > engine_.block()) break;
      // Those that are better served by their common context come next.
      if (!trunk && i > begin && shared_length(i, same_context_end(i)) > 0) break;
      states.push_back(trunk ? trunk : engine_.states().acquire());
      want_logits(i, from, fed(i), used, places, rows);
      used += fed(i) - from;
    }
    std::vector<Piece> pieces;
    for (size_t k = 0; k < states.size(); ++k) {
      pieces.push_back(
          {&states[k], tokens(begin + k).subspan(static_cast<size_t>(from),
                                                 static_cast<size_t>(fed(begin + k) - from))});
    }
    score(engine_.step(pieces), places, rows);
    states.clear();
    if (pause_) pause_();
    return i;
  }

  void feed_rest(size_t i, StateHandle& state, int64_t from) { feed(i, state, from, fed(i)); }

  // Tokens [from, to) of a request, block by block.
  void feed(size_t i, StateHandle& state, int64_t from, int64_t to) {
    while (from < to) {
      const int64_t count = std::min(engine_.block() - from % engine_.block(), to - from);
      const Piece piece{&state,
                        tokens(i).subspan(static_cast<size_t>(from), static_cast<size_t>(count))};
      std::vector<Place> places;
      std::vector<int32_t> rows;
      want_logits(i, from, from + count, 0, places, rows);
      score(engine_.step(std::span(&piece, 1)), places, rows);
      from += count;
      if (pause_) pause_();
    }
  }

  // The places of [from, to) whose next token belongs to the continuation; row: that of `from`.
  void want_logits(size_t i, int64_t from, int64_t to, int64_t row, std::vector<Place>& places,
                   std::vector<int32_t>& rows) const {
    for (int64_t at = std::max(from, requests_[i].context - 1); at < to; ++at) {
      places.push_back({i, at});
      rows.push_back(static_cast<int32_t>(row + at - from));
    }
  }

  void score(const Tensor& hidden, std::span<const Place> places, std::span<const int32_t> rows) {
    const auto vocab = static_cast<size_t>(engine_.config().vocab_rows);
    const auto most = static_cast<size_t>(engine_.max_logit_rows());
    for (size_t begin = 0; begin < rows.size(); begin += most) {
      const size_t count = std::min(most, rows.size() - begin);
      const Tensor logits = engine_.logits(hidden, rows.subspan(begin, count));
      host_.resize(count * vocab);
      engine_.backend().read(logits, std::as_writable_bytes(std::span(host_)));
      for (size_t k = 0; k < count; ++k) {
        const auto [i, position] = places[begin + k];
        const int32_t next = tokens(i)[static_cast<size_t>(position) + 1];
        const auto row = std::span<const float>(host_).subspan(k * vocab, vocab);
        int32_t best = 0;
        scores_[i].nll.push_back(token_nll(engine_, row, next, &best));
        scores_[i].best.push_back(best);
      }
    }
  }

  Engine& engine_;
  std::span<const ContinuationRequest> requests_;
  const std::function<void()>& pause_;
  int64_t align_;  // where a text may be cut, in tokens from the beginning of a block
  std::vector<ContinuationScore> scores_;
  std::vector<float> host_;
};

}  // namespace

std::vector<ContinuationScore> score_continuations(Engine& engine,
                                                   std::span<const ContinuationRequest> requests,
                                                   const std::function<void()>& pause) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const ContinuationRequest& r = requests[i];
    const auto count = static_cast<int64_t>(r.tokens.size());
    ADDER_CHECK(r.context >= 1 && r.context < count,
                "requests[{}]: expected 1 to {} tokens of context before at least 1 more, got {}",
                i, count - 1, r.context);
    check_predicted(engine, r.tokens);
  }
  return ContinuationRun(engine, requests, pause).run();
}

}  // namespace adder
