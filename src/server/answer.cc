#include "server/answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/replies.h"

namespace adder {

struct Answer::Tickets {
  explicit Tickets(Scheduler& s) : scheduler(s) {}

  Scheduler& scheduler;
  std::mutex mutex;
  std::vector<Scheduler::Ticket> list;
  bool cancelled = false;

  void add(Scheduler::Ticket ticket) {
    {
      const std::lock_guard lock(mutex);
      list.push_back(ticket);
      if (!cancelled) return;
    }
    scheduler.cancel(ticket);
  }
  void cancel() {
    std::vector<Scheduler::Ticket> all;
    {
      const std::lock_guard lock(mutex);
      cancelled = true;
      all = list;
    }
    for (const Scheduler::Ticket ticket : all) scheduler.cancel(ticket);
  }
};

// One of the answer's requests; its choices are numbered from `first_choice` on.
class Answer::Listener final : public RequestListener {
 public:
  Listener(std::shared_ptr<Answer> answer, int first_choice)
      : answer_(std::move(answer)), first_(first_choice) {}

  void on_start(int64_t, int64_t) override { answer_->start(first_); }
  void on_token(int choice, int32_t, std::string_view text,
                const TokenLogprobs* logprobs) override {
    answer_->token(first_ + choice, text, logprobs);
  }
  void on_finish(int choice, FinishReason reason, std::string_view text) override {
    answer_->finish_choice(first_ + choice, reason, text);
  }
  void on_done(const RequestUsage& usage) override { answer_->request_done(usage); }
  void on_error(const Error& error) override { answer_->request_failed(error); }

 private:
  std::shared_ptr<Answer> answer_;
  int first_;
};

Answer::Answer(const AnswerContext& context, AnswerOptions options,
               std::shared_ptr<HttpReply> reply)
    : context_(context),
      options_(std::move(options)),
      reply_(std::move(reply)),
      tickets_(std::make_shared<Tickets>(context.scheduler)),
      writer_(options_.head, options_.include_usage) {}

Answer::~Answer() = default;

void Answer::submit(std::vector<ServeRequest> requests) {
  if (reply_->gone()) return;
  open_ = requests.size();
  choices_.resize(open_ * static_cast<size_t>(options_.choices_per_request));
  for (Choice& choice : choices_) choice.strip_blank = options_.strip_blank;
  reply_->on_gone([tickets = tickets_] { tickets->cancel(); });
  for (size_t i = 0; i < requests.size() && !ended_; ++i) {
    const int first = static_cast<int>(i) * options_.choices_per_request;
    try {
      const Scheduler::Ticket ticket = context_.scheduler.submit(
          std::move(requests[i]), std::make_shared<Listener>(shared_from_this(), first));
      context_.running[ticket] = {options_.head.id, first};
      tickets_->add(ticket);
    } catch (const Error& error) {
      open_ -= requests.size() - i - 1;  // nobody will hear of those
      request_failed(error);
    }
  }
}

void Answer::start(int first_choice) {
  if (ended_ || !options_.stream) return;
  if (!streaming_) {
    streaming_ = true;
    begin_event_stream(*reply_);
  }
  for (int i = 0; i < options_.choices_per_request; ++i) {
    if (options_.head.chat) reply_->write(writer_.role(first_choice + i));
    if (options_.echoes.empty()) continue;
    const auto request = static_cast<size_t>(first_choice / options_.choices_per_request);
    reply_->write(writer_.text(first_choice + i, options_.echoes[request]));
  }
}

void Answer::token(int index, std::string_view text, const TokenLogprobs* logprobs) {
  if (ended_) return;
  Choice& choice = choices_[static_cast<size_t>(index)];
  const auto now = std::chrono::steady_clock::now();
  const auto seconds_since = [now](std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  if (choice.last_token == std::chrono::steady_clock::time_point()) {
    context_.metrics.first_token.observe(seconds_since(options_.arrived));
  } else {
    context_.metrics.between_tokens.observe(seconds_since(choice.last_token));
  }
  choice.last_token = now;
  if (logprobs != nullptr) choice.track.add(spell(context_.tokenizer, *logprobs));
  show(index, text);
}

void Answer::show(int index, std::string_view text) {
  if (text.empty()) return;
  Choice& choice = choices_[static_cast<size_t>(index)];
  std::vector<SpelledToken> tokens;
  if (options_.want_logprobs) tokens = choice.track.release(text);
  if (choice.strip_blank && text.starts_with(' ')) text.remove_prefix(1);
  choice.strip_blank = false;
  if (!options_.stream) {
    choice.body.text += text;
    std::move(tokens.begin(), tokens.end(), std::back_inserter(choice.tokens));
  } else if (tokens.empty()) {
    reply_->write(writer_.text(index, text));
  } else {
    reply_->write(writer_.text(index, text, logprobs_text(choice, tokens)));
  }
}

void Answer::finish_choice(int index, FinishReason reason, std::string_view text) {
  if (ended_) return;
  show(index, text);
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.body.finish = reason;
  std::vector<SpelledToken> tokens = choice.track.finish(reason);
  if (!options_.stream) {
    std::move(tokens.begin(), tokens.end(), std::back_inserter(choice.tokens));
    if (options_.want_logprobs) choice.body.logprobs = logprobs_text(choice, choice.tokens);
  } else if (tokens.empty()) {
    reply_->write(writer_.finish(index, reason));
  } else {
    reply_->write(writer_.finish(index, reason, logprobs_text(choice, tokens)));
  }
}

std::string Answer::logprobs_text(Choice& choice, const std::vector<SpelledToken>& tokens) const {
  return options_.head.chat ? chat_logprobs(tokens) : completion_logprobs(tokens, choice.offset);
}

void Answer::request_done(const RequestUsage& usage) {
  usage_.prompt_tokens += usage.prompt_tokens;
  usage_.cached_tokens += usage.cached_tokens;
  usage_.completion_tokens += usage.completion_tokens;
  // Requests of one body run side by side.
  usage_.queue_s = std::max(usage_.queue_s, usage.queue_s);
  usage_.prefill_s = std::max(usage_.prefill_s, usage.prefill_s);
  usage_.decode_s = std::max(usage_.decode_s, usage.decode_s);
  if (--open_ > 0) return;
  forget_tickets();
  if (ended_) return;
  ended_ = true;
  if (streaming_) {
    if (options_.include_usage) reply_->write(writer_.usage(usage_));
    reply_->write(ChunkWriter::done());
    reply_->end();
    return;
  }
  std::vector<AnswerChoice> bodies;
  for (size_t i = 0; i < choices_.size(); ++i) {
    bodies.push_back(std::move(choices_[i].body));
    if (options_.echoes.empty()) continue;
    const size_t request = i / static_cast<size_t>(options_.choices_per_request);
    bodies.back().text.insert(0, options_.echoes[request]);
  }
  send_json(*reply_, 200, answer_body(options_.head, bodies, usage_));
}

void Answer::request_failed(const Error& error) {
  const bool stopping = error.code() == ErrorCode::kBusy && context_.draining;
  fail(stopping ? ApiError(503, error.what(), "", "shutting_down") : to_api_error(error));
  if (--open_ == 0) forget_tickets();
}

void Answer::fail(const ApiError& error) {
  if (ended_) return;
  ended_ = true;
  tickets_->cancel();
  if (streaming_) {
    reply_->write(writer_.error(error));
    reply_->end();
  } else {
    send_error(*reply_, error);
  }
}

void Answer::forget_tickets() {
  const std::lock_guard lock(tickets_->mutex);
  for (const Scheduler::Ticket ticket : tickets_->list) context_.running.erase(ticket);
}

}  // namespace adder
