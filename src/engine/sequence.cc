#include "engine/sequence.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/random.h"
#include "engine/logit_editor.h"

namespace adder {
namespace {

// Token buffers are reserved for at most this many tokens ahead, so that an unbounded request does
// not reserve unbounded memory; beyond it they grow by doubling.
constexpr int64_t kReserveTokens = 1 << 16;

double seconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

}  // namespace

void check_options(const Engine& engine, const GenerationRequest& r) {
  r.sampling.validate();
  engine.check_tokens(r.prompt);
  ADDER_CHECK(r.max_tokens >= 0, "max_tokens: expected 0 or more, got {}", r.max_tokens);
  ADDER_CHECK(r.top_logprobs >= 0 && r.top_logprobs <= engine.vocab_limit(),
              "logprobs: expected 0 to {}, got {}", engine.vocab_limit(), r.top_logprobs);
  ADDER_CHECK(engine.has_tokenizer() || r.stop.empty(),
              "stop: the model has no tokenizer, so stop strings cannot be found");
}

void check_request(const Engine& engine, const GenerationRequest& r) {
  check_options(engine, r);
  const Conversation* c = r.conversation;
  ADDER_CHECK(!r.prompt.empty() || (c != nullptr && c->state && !c->logits.empty()),
              "prompt: expected at least 1 token, got none");
}

Sequence::Sequence(Engine& engine, const GenerationRequest& r) : request_(&r) {
  conversation_ = r.conversation != nullptr ? r.conversation : &own_;
  if (!conversation_->state) *conversation_ = Conversation{engine.states().acquire(), 0, 0, {}, {}};
  result_.cached_tokens = conversation_->length;
  result_.prompt_tokens = conversation_->length + static_cast<int64_t>(r.prompt.size());
  const auto expected = static_cast<size_t>(std::min(r.max_tokens, kReserveTokens));
  history_ = conversation_->recent;
  history_.reserve(history_.size() + r.prompt.size() + expected);
  history_.insert(history_.end(), r.prompt.begin(), r.prompt.end());
  result_.tokens.reserve(expected);
  if (engine.has_tokenizer()) {
    // After a prompt the answer is the middle of a text; a blank in front of it belongs to it.
    const Tokenizer& tokenizer = engine.tokenizer();
    const bool at_start = std::all_of(history_.begin(), history_.end(), [&](int32_t id) {
      return id < tokenizer.size() && tokenizer.is_special(id);
    });
    decoder_.emplace(tokenizer, at_start);
    matcher_.emplace(r.stop);
    result_.text.reserve(8 * expected);
  }
  started_ = first_token_ = seconds();
}

std::span<const int32_t> Sequence::next_tokens(int64_t block) const {
  if (phase_ == Phase::kPrompt) {
    int64_t count = std::min(block, static_cast<int64_t>(request_->prompt.size()) - fed_);
    const int64_t to_cut = cut_ - conversation_->length;
    if (to_cut > 0) count = std::min(count, to_cut);
    return std::span(request_->prompt)
        .subspan(static_cast<size_t>(fed_), static_cast<size_t>(count));
  }
  return std::span(history_).last(1);
}

uint64_t Sequence::random_index() const {
  return static_cast<uint64_t>(result_.prompt_tokens) + result_.tokens.size();
}

SampleParams Sequence::sample_params() const {
  const SamplingOptions& s = request_->sampling;
  const size_t last_n = std::min(history_.size(), static_cast<size_t>(s.repeat_last_n));
  return {s.temperature,
          s.top_k,
          s.top_p,
          s.min_p,
          s.repeat_penalty,
          s.repeat_penalty == 1.0f ? std::span<const int32_t>() : std::span(history_).last(last_n),
          uniform_at(s.seed, random_index())};
}

// The state has taken in `tokens`.
void Sequence::advance(std::span<const int32_t> tokens) {
  conversation_->length += static_cast<int64_t>(tokens.size());
  for (int32_t token : tokens) {
    conversation_->token_hash = extend_token_hash(conversation_->token_hash, token);
  }
  conversation_->logits.clear();
  if (phase_ != Phase::kPrompt) return;
  fed_ += static_cast<int64_t>(tokens.size());
  if (request_->on_prefill) request_->on_prefill(fed_);
}

void Sequence::emit(std::string_view text) {
  if (text.empty()) return;
  result_.text += text;
  if (request_->on_text) request_->on_text(text);
}

void Sequence::end(FinishReason reason) {
  result_.finish = reason;
  // The last token has been chosen but not processed; a conversation needs it in its state.
  phase_ = phase_ == Phase::kDecode && finishes_state() ? Phase::kFlush : Phase::kDone;
}

void Sequence::accept(const Engine& engine, int32_t token) {
  if (phase_ == Phase::kPrompt) {
    first_token_ = seconds();
    phase_ = Phase::kDecode;
  }
  const auto& stops = request_->stop_tokens;
  if ((engine.is_eos(token) && !request_->ignore_eos) ||
      std::find(stops.begin(), stops.end(), token) != stops.end()) {
    result_.finish = FinishReason::kStop;
    phase_ = Phase::kDone;
    return;
  }
  history_.push_back(token);
  result_.tokens.push_back(token);
  if (decoder_) {
    emit(matcher_->push(decoder_->push(token)));
    if (matcher_->matched()) return end(FinishReason::kStop);
  }
  if (LogitEditor* editor = request_->editor.get()) {
    editor->accept(token);
    if (editor->finished()) return end(FinishReason::kStop);
  }
  if (static_cast<int64_t>(result_.tokens.size()) >= request_->max_tokens) {
    end(FinishReason::kLength);
  }
}

void Sequence::close() {
  if (decoder_ && !matcher_->matched()) {
    emit(matcher_->push(decoder_->finish()));
    emit(matcher_->finish());
  }
  const double now = seconds();
  if (result_.tokens.empty()) first_token_ = now;
  result_.prefill_s = first_token_ - started_;
  result_.decode_s = now - first_token_;
  // A prompt that was cancelled has a rest that the state never saw.
  history_.resize(history_.size() - (request_->prompt.size() - static_cast<size_t>(fed_)));
  const size_t keep = std::min(history_.size(), kRecentTokens);
  conversation_->recent.assign(history_.end() - static_cast<int64_t>(keep), history_.end());
  if (!has_conversation()) own_ = Conversation();
}

}  // namespace adder
