// One HTTP request that generates, from its submission to the last byte of its answer.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/scheduler.h"
#include "server/http_reply.h"
#include "server/logprob_track.h"
#include "server/metrics.h"
#include "server/openai_response.h"

namespace adder {

// What runs, by ticket, for /v1/state: the answer's id and the number of the ticket's first choice.
// Of the scheduler's thread only.
struct RunningAnswer {
  std::string id;
  int first_choice = 0;
};
using RunningAnswers = std::map<Scheduler::Ticket, RunningAnswer>;

// What all answers share; outlives them.
struct AnswerContext {
  Scheduler& scheduler;
  const Tokenizer& tokenizer;
  ServerMetrics& metrics;
  RunningAnswers& running;
  const std::atomic<bool>& draining;
};

struct AnswerOptions {
  AnswerHead head;
  int choices_per_request = 1;
  bool stream = false, include_usage = false, want_logprobs = false;
  bool strip_blank = false;         // one that the text begins with
  std::vector<std::string> echoes;  // of each request, in front of its choices' texts; may be empty
  std::chrono::steady_clock::time_point arrived;
};

// Everything happens on the scheduler's thread, but for the client's going away, which cancels.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(const AnswerContext& context, AnswerOptions options, std::shared_ptr<HttpReply> reply);
  ~Answer();

  // All requests or none: one that is refused cancels the others. Errors go to the client.
  void submit(std::vector<ServeRequest> requests);
  // Tells the client and stops what runs. Nothing once the answer has ended.
  void fail(const ApiError& error);

 private:
  class Listener;
  struct Choice {
    AnswerChoice body;
    LogprobTrack track;
    std::vector<SpelledToken> tokens;  // released ones, for a body
    int64_t offset = 0;                // in characters, of the next token's text
    bool strip_blank = false;
    std::chrono::steady_clock::time_point last_token;
  };
  // Shared with the callback of the client's going away, which may come at any time.
  struct Tickets;

  void start(int first_choice);
  void token(int choice, std::string_view text, const TokenLogprobs* logprobs);
  void finish_choice(int choice, FinishReason reason, std::string_view text);
  void request_done(const RequestUsage& usage);
  void request_failed(const Error& error);

  // Text and the tokens that go with it, to the client or into the body.
  void show(int index, std::string_view text);
  std::string logprobs_text(Choice& choice, const std::vector<SpelledToken>& tokens) const;
  void forget_tickets();

  AnswerContext context_;
  AnswerOptions options_;
  std::shared_ptr<HttpReply> reply_;
  std::shared_ptr<Tickets> tickets_;
  ChunkWriter writer_;
  std::vector<Choice> choices_;
  RequestUsage usage_;
  size_t open_ = 0;  // requests without an end
  bool streaming_ = false, ended_ = false;
};

}  // namespace adder
