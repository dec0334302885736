#include "engine/generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/error.h"
#include "engine/logprobs.h"
#include "engine/random.h"
#include "engine/stop_matcher.h"

namespace adder {
namespace {

// Token buffers are reserved for at most this many tokens ahead, so that an unbounded request does
// not reserve unbounded memory; beyond it they grow by doubling.
constexpr int64_t kReserveTokens = 1 << 16;

double seconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

enum class Phase { kPrompt, kDecode, kFlush, kDone };

// One request in flight.
struct Sequence {
  const GenerationRequest* request = nullptr;
  GenerationResult result;
  Conversation own;
  Conversation* conversation = nullptr;
  Phase phase = Phase::kPrompt;
  int64_t fed = 0;  // of the prompt
  std::vector<int32_t> history;
  std::optional<StreamDecoder> decoder;
  std::optional<StopMatcher> matcher;
  double started = 0, first_token = 0;

  Sequence(Engine& engine, const GenerationRequest& r);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  bool cancelled() const { return request->cancel != nullptr && request->cancel->load(); }
  bool keeps_state() const { return request->conversation != nullptr; }
  bool asks_logits() const { return request->max_tokens > 0 || keeps_state(); }

  // The tokens of the next step: at multiples of `block` from the start of the prompt, so that the
  // cuts do not depend on what else is running.
  std::span<const int32_t> next_tokens(int64_t block) const;
  SampleParams sample_params() const;
  void advance(std::span<const int32_t> tokens);
  void accept(const Engine& engine, int32_t token);
  void emit(std::string_view text);
  void end(FinishReason reason);
  void close();
};

// Everything that can be wrong with a request, before anything has been changed for it.
void check_request(const Engine& engine, const GenerationRequest& r) {
  r.sampling.validate();
  engine.check_tokens(r.prompt);
  ADDER_CHECK(r.max_tokens >= 0, "max_tokens: expected 0 or more, got {}", r.max_tokens);
  ADDER_CHECK(r.top_logprobs >= 0 && r.top_logprobs <= engine.vocab_limit(),
              "logprobs: expected 0 to {}, got {}", engine.vocab_limit(), r.top_logprobs);
  const Conversation* c = r.conversation;
  ADDER_CHECK(!r.prompt.empty() || (c != nullptr && c->state && !c->logits.empty()),
              "prompt: expected at least 1 token, got none");
  ADDER_CHECK(engine.has_tokenizer() || r.stop.empty(),
              "stop: the model has no tokenizer, so stop strings cannot be found");
}

// The slots that the requests will take: one for each new sequence, and one for each that shares
// its state with somebody and is going to write it. The last owner of a shared slot keeps it.
int64_t needed_slots(std::span<const GenerationRequest> requests) {
  struct Shared {
    int64_t writers = 0, handles = 0;
  };
  int64_t needed = 0;
  std::map<int32_t, Shared> shared;
  for (const GenerationRequest& r : requests) {
    if (r.conversation == nullptr || !r.conversation->state) {
      ++needed;
    } else if (!r.prompt.empty() || r.max_tokens > 0) {
      Shared& slot = shared[r.conversation->state.slot()];
      ++slot.writers;
      slot.handles = r.conversation->state.handles();
    }
  }
  for (const auto& [index, slot] : shared) {
    needed += slot.writers == slot.handles ? slot.writers - 1 : slot.writers;
  }
  return needed;
}

void check_requests(Engine& engine, std::span<const GenerationRequest> requests) {
  std::set<const Conversation*> conversations;
  for (const GenerationRequest& r : requests) {
    check_request(engine, r);
    ADDER_CHECK(r.conversation == nullptr || conversations.insert(r.conversation).second,
                "conversation: expected a different one for each request, got the same twice");
  }
  const int64_t free = engine.states().free_slots(), needed = needed_slots(requests);
  ADDER_CHECK(needed <= free, "generate: expected at most {} new sequences, got {}", free, needed);
}

Sequence::Sequence(Engine& engine, const GenerationRequest& r) : request(&r) {
  conversation = r.conversation != nullptr ? r.conversation : &own;
  if (!conversation->state) *conversation = Conversation{engine.states().acquire(), 0, 0, {}, {}};
  result.cached_tokens = conversation->length;
  result.prompt_tokens = conversation->length + static_cast<int64_t>(r.prompt.size());
  const auto expected = static_cast<size_t>(std::min(r.max_tokens, kReserveTokens));
  history = conversation->recent;
  history.reserve(history.size() + r.prompt.size() + expected);
  history.insert(history.end(), r.prompt.begin(), r.prompt.end());
  result.tokens.reserve(expected);
  if (engine.has_tokenizer()) {
    // After a prompt the answer is the middle of a text; a blank in front of it belongs to it.
    const Tokenizer& tokenizer = engine.tokenizer();
    const bool at_start = std::all_of(history.begin(), history.end(), [&](int32_t id) {
      return id < tokenizer.size() && tokenizer.is_special(id);
    });
    decoder.emplace(tokenizer, at_start);
    matcher.emplace(r.stop);
    result.text.reserve(8 * expected);
  }
  started = first_token = seconds();
}

std::span<const int32_t> Sequence::next_tokens(int64_t block) const {
  if (phase == Phase::kPrompt) {
    const auto left = static_cast<int64_t>(request->prompt.size()) - fed;
    return std::span(request->prompt)
        .subspan(static_cast<size_t>(fed), static_cast<size_t>(std::min(block, left)));
  }
  return std::span(history).last(1);
}

SampleParams Sequence::sample_params() const {
  const SamplingOptions& s = request->sampling;
  const size_t last_n = std::min(history.size(), static_cast<size_t>(s.repeat_last_n));
  const auto index = static_cast<uint64_t>(result.prompt_tokens) + result.tokens.size();
  return {s.temperature,
          s.top_k,
          s.top_p,
          s.min_p,
          s.repeat_penalty,
          s.repeat_penalty == 1.0f ? std::span<const int32_t>() : std::span(history).last(last_n),
          uniform_at(s.seed, index)};
}

// The state has taken in `tokens`.
void Sequence::advance(std::span<const int32_t> tokens) {
  conversation->length += static_cast<int64_t>(tokens.size());
  for (int32_t token : tokens) {
    conversation->token_hash = extend_token_hash(conversation->token_hash, token);
  }
  conversation->logits.clear();
  if (phase != Phase::kPrompt) return;
  fed += static_cast<int64_t>(tokens.size());
  if (request->on_prefill) request->on_prefill(fed);
}

void Sequence::emit(std::string_view text) {
  if (text.empty()) return;
  result.text += text;
  if (request->on_text) request->on_text(text);
}

void Sequence::end(FinishReason reason) {
  result.finish = reason;
  // The last token has been chosen but not processed; a conversation needs it in its state.
  phase = phase == Phase::kDecode && keeps_state() ? Phase::kFlush : Phase::kDone;
}

void Sequence::accept(const Engine& engine, int32_t token) {
  if (phase == Phase::kPrompt) {
    first_token = seconds();
    phase = Phase::kDecode;
  }
  const auto& stops = request->stop_tokens;
  if ((engine.is_eos(token) && !request->ignore_eos) ||
      std::find(stops.begin(), stops.end(), token) != stops.end()) {
    result.finish = FinishReason::kStop;
    phase = Phase::kDone;
    return;
  }
  history.push_back(token);
  result.tokens.push_back(token);
  if (decoder) {
    emit(matcher->push(decoder->push(token)));
    if (matcher->matched()) return end(FinishReason::kStop);
  }
  if (static_cast<int64_t>(result.tokens.size()) >= request->max_tokens) end(FinishReason::kLength);
}

void Sequence::close() {
  if (decoder && !matcher->matched()) {
    emit(matcher->push(decoder->finish()));
    emit(matcher->finish());
  }
  const double now = seconds();
  if (result.tokens.empty()) first_token = now;
  result.prefill_s = first_token - started;
  result.decode_s = now - first_token;
  // A prompt that was cancelled has a rest that the state never saw.
  history.resize(history.size() - (request->prompt.size() - static_cast<size_t>(fed)));
  constexpr size_t kKeep = 1024;  // the longest --repeat-last-n that makes sense across requests
  const size_t keep = std::min(history.size(), kKeep);
  conversation->recent.assign(history.end() - static_cast<int64_t>(keep), history.end());
  if (!keeps_state()) own = Conversation();
}

// The requests of one generate() call, step by step.
class Run {
 public:
  Run(Engine& engine, std::span<const GenerationRequest> requests) : engine_(engine) {
    check_requests(engine, requests);
    for (const GenerationRequest& r : requests) {
      sequences_.push_back(std::make_unique<Sequence>(engine, r));
    }
    pieces_.reserve(requests.size());
    stepping_.reserve(requests.size());
    rows_.reserve(requests.size());
    asking_.reserve(requests.size());
    params_.reserve(requests.size());
    sampled_.reserve(requests.size());
  }

  std::vector<GenerationResult> finish() {
    start_from_saved_logits();
    while (collect()) step();
    std::vector<GenerationResult> results;
    for (const auto& s : sequences_) {
      s->close();
      results.push_back(std::move(s->result));
    }
    return results;
  }

 private:
  // A conversation that goes on without new text has its logits already.
  void start_from_saved_logits() {
    for (const auto& s : sequences_) {
      if (!s->request->prompt.empty()) continue;
      if (s->cancelled()) {
        s->end(FinishReason::kCancelled);
        continue;
      }
      if (s->request->max_tokens == 0) {
        s->phase = Phase::kDone;
        continue;
      }
      asking_.assign(1, s.get());
      choose(engine_.import_logits(s->conversation->logits));
    }
  }

  // Picks the pieces of the next step; false when nothing is left to do.
  bool collect() {
    pieces_.clear();
    stepping_.clear();
    int64_t room = engine_.max_step_tokens();
    for (const bool decoding : {true, false}) {  // sequences that are generating go first
      for (const auto& s : sequences_) {
        if (s->phase == Phase::kDone || (s->phase != Phase::kPrompt) != decoding) continue;
        if (s->cancelled() && s->phase != Phase::kFlush) {
          s->end(FinishReason::kCancelled);
          if (s->phase == Phase::kDone) continue;
        }
        const auto tokens = s->next_tokens(engine_.block());
        if (static_cast<int64_t>(tokens.size()) > room) continue;
        room -= static_cast<int64_t>(tokens.size());
        pieces_.push_back({&s->conversation->state, tokens});
        stepping_.push_back(s.get());
      }
    }
    return !pieces_.empty();
  }

  void step() {
    const Tensor hidden = engine_.step(pieces_);
    rows_.clear();
    asking_.clear();
    int32_t end = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      Sequence& s = *stepping_[i];
      end += static_cast<int32_t>(pieces_[i].tokens.size());
      s.advance(pieces_[i].tokens);
      const bool more =
          s.phase == Phase::kPrompt && s.fed < static_cast<int64_t>(s.request->prompt.size());
      if (more) continue;
      if (!s.asks_logits()) {
        s.phase = Phase::kDone;
        continue;
      }
      rows_.push_back(end - 1);
      asking_.push_back(&s);
    }
    if (!rows_.empty()) choose(engine_.logits(hidden, rows_));
  }

  // Row i of `logits` belongs to asking_[i].
  void choose(const Tensor& logits) {
    params_.clear();
    for (const Sequence* s : asking_) params_.push_back(s->sample_params());
    sampled_.resize(asking_.size());
    try {
      engine_.backend().sample({logits, engine_.vocab_limit(), params_, sampled_});
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kInternal) engine_.explain_non_finite();
      throw;
    }
    for (size_t i = 0; i < asking_.size(); ++i) {
      Sequence& s = *asking_[i];
      const Tensor row = logits.slice(0, static_cast<int64_t>(i), 1);
      if (s.phase == Phase::kFlush || s.request->max_tokens == 0) {
        s.phase = Phase::kDone;
      } else {
        if (s.request->want_logprobs) record_logprobs(s, row, sampled_[i]);
        s.accept(engine_, sampled_[i]);
      }
      if (s.phase == Phase::kDone && s.keeps_state()) {
        s.conversation->logits.resize(static_cast<size_t>(row.size()));
        engine_.backend().read(row, std::as_writable_bytes(std::span(s.conversation->logits)));
      }
    }
  }

  void record_logprobs(Sequence& s, const Tensor& row, int32_t token) {
    host_logits_.resize(static_cast<size_t>(row.size()));
    engine_.backend().read(row, std::as_writable_bytes(std::span(host_logits_)));
    const auto known = std::span(host_logits_).first(static_cast<size_t>(engine_.vocab_limit()));
    s.result.logprobs.push_back(token_logprobs(known, token, s.request->top_logprobs));
  }

  Engine& engine_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Piece> pieces_;
  std::vector<Sequence*> stepping_, asking_;
  std::vector<int32_t> rows_, sampled_;
  std::vector<SampleParams> params_;
  std::vector<float> host_logits_;
};

void check_range(std::string_view option, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    bad_input("{}: expected a number from {} to {}, got {}", option, low, high, value);
  }
}

}  // namespace

void SamplingOptions::validate() const {
  check_range("temp", temperature, 0.0, 100.0);
  check_range("top-k", top_k, 0, 1 << 30);
  check_range("top-p", top_p, 0.0, 1.0);
  check_range("min-p", min_p, 0.0, 1.0);
  check_range("repeat-penalty", repeat_penalty, 0.01, 100.0);
  check_range("repeat-last-n", repeat_last_n, 0, 1 << 30);
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

std::vector<GenerationResult> generate(Engine& engine,
                                       std::span<const GenerationRequest> requests) {
  return Run(engine, requests).finish();
}

GenerationResult generate(Engine& engine, const GenerationRequest& request) {
  return std::move(generate(engine, std::span(&request, 1)).front());
}

}  // namespace adder
