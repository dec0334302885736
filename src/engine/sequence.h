// One request of tokens on its way through packed steps. Used by Stepper and by those who drive it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "engine/generator.h"
#include "engine/stop_matcher.h"

namespace adder {

// Everything that can be wrong with a request by itself, before anything has been changed for it.
// Throws Error(kBadInput). Reads only what does not change in the engine.
void check_request(const Engine& engine, const GenerationRequest& request);
// The same for everything but whether there is a prompt.
void check_options(const Engine& engine, const GenerationRequest& request);

class Sequence {
 public:
  enum class Phase : uint8_t {
    kPrompt,  // feeding the prompt
    kDecode,  // feeding what was generated, a token at a time
    kFlush,   // feeding the last token, for its state
    kDone
  };

  // Takes a slot when the request's conversation has none. The request must have passed
  // check_request() and must outlive the sequence.
  Sequence(Engine& engine, const GenerationRequest& request);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Phase phase() const { return phase_; }
  bool done() const { return phase_ == Phase::kDone; }
  const GenerationRequest& request() const { return *request_; }
  const Conversation& conversation() const { return *conversation_; }
  // So far; `text`, `finish` and the times are complete after close().
  const GenerationResult& result() const { return result_; }
  // It is done and nothing of it can be used: its logits are not finite, or its editor threw, for
  // which error() has the reason.
  bool failed() const { return failed_; }
  const std::optional<Error>& error() const { return error_; }

  // Pieces of the prompt end at this length of the conversation, if they come to it.
  void set_cut(int64_t length) { cut_ = length; }

  // Ends it where it is. In kDecode with a conversation to finish, one more step follows.
  void end(FinishReason reason);
  // Once done: hands out the text that was held back and leaves the conversation complete.
  void close();
  GenerationResult take_result() { return std::move(result_); }

 private:
  friend class Stepper;

  bool cancelled() const { return request_->cancel != nullptr && request_->cancel->load(); }
  bool has_conversation() const { return request_->conversation != nullptr; }
  bool finishes_state() const { return has_conversation() && request_->finish_state; }
  bool asks_logits() const { return request_->max_tokens > 0 || finishes_state(); }

  // The tokens of the next step: at multiples of `block` from the start of the prompt and at the
  // cut, so that the pieces do not depend on what else is running.
  std::span<const int32_t> next_tokens(int64_t block) const;
  uint64_t random_index() const;  // of the next token's random number
  SampleParams sample_params() const;
  void advance(std::span<const int32_t> tokens);
  void accept(const Engine& engine, int32_t token);
  void emit(std::string_view text);

  const GenerationRequest* request_;
  GenerationResult result_;
  Conversation own_;
  Conversation* conversation_ = nullptr;
  Phase phase_ = Phase::kPrompt;
  bool failed_ = false;
  std::optional<Error> error_;
  int64_t fed_ = 0;  // of the prompt
  int64_t cut_ = std::numeric_limits<int64_t>::max();
  std::vector<int32_t> history_;
  std::vector<float> raw_logits_;  // before an editor changed them
  std::optional<StreamDecoder> decoder_;
  std::optional<StopMatcher> matcher_;
  double started_ = 0, first_token_ = 0;
};

}  // namespace adder
