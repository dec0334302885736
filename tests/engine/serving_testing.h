// Helpers of the scheduler's tests: a listener that remembers, and a scheduler with its thread.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_testing.h"
#include "engine/scheduler.h"

namespace adder::testing {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  std::optional<FinishReason> finish;
};

class Recorder : public RequestListener {
 public:
  void on_start(int64_t prompt_tokens, int64_t cached_tokens) override {
    const std::lock_guard lock(mutex_);
    prompt_tokens_ = prompt_tokens;
    cached_tokens_ = cached_tokens;
    if (on_started) on_started();
    changed_.notify_all();
  }
  void on_token(int choice, int32_t token, std::string_view text,
                const TokenLogprobs* logprobs) override {
    {
      const std::lock_guard lock(mutex_);
      Answer& answer = answers_[choice];
      answer.tokens.push_back(token);
      answer.text += text;
      if (logprobs != nullptr) answer.logprobs.push_back(logprobs->chosen.logprob);
      ++tokens_;
      changed_.notify_all();
    }
    if (on_tokens) on_tokens();
  }
  void on_finish(int choice, FinishReason reason, std::string_view text) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(answers_[choice].finish.has_value());
    answers_[choice].finish = reason;
    answers_[choice].text += text;
  }
  void on_done(const RequestUsage& usage) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_);
    usage_ = usage;
    over_ = true;
    changed_.notify_all();
  }
  void on_error(const Error& error) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_);
    error_ = error;
    over_ = true;
    changed_.notify_all();
  }

  // Waits for the end.
  Recorder& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_; });
    return *this;
  }
  void wait_tokens(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_ || tokens_ >= count; });
  }
  int64_t tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

  // After wait().
  const Answer& answer(int choice = 0) { return answers_[choice]; }
  size_t answers() const { return answers_.size(); }
  const RequestUsage& usage() const { return usage_; }
  const std::optional<Error>& error() const { return error_; }

  // Called on the scheduler's thread; set before the request is submitted.
  std::function<void()> on_started, on_tokens;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Answer> answers_;
  int64_t tokens_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
  RequestUsage usage_;
  std::optional<Error> error_;
  bool over_ = false;
};

class Serving {
 public:
  explicit Serving(const std::string& model, int32_t slots, SchedulerOptions options = {},
                   int64_t block = 64)
      : engine(golden_engine(model, engine_options(slots, block))), scheduler(*engine, options) {
    thread_ = std::thread([this] { scheduler.run(); });
  }
  ~Serving() { stop(); }

  void stop(std::chrono::milliseconds patience = std::chrono::minutes(5)) {
    scheduler.stop(Scheduler::Clock::now() + patience);
    if (thread_.joinable()) thread_.join();
  }
  std::shared_ptr<Recorder> submit(ServeRequest request) {
    auto recorder = std::make_shared<Recorder>();
    tickets[recorder.get()] = scheduler.submit(std::move(request), recorder);
    return recorder;
  }
  Recorder& ask(ServeRequest request) {
    kept_.push_back(submit(std::move(request)));
    return kept_.back()->wait();
  }
  // Runs on the scheduler's thread and waits for it.
  void inside(const std::function<void(const Scheduler::Inside&)>& job) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    scheduler.post([&](const Scheduler::Inside& in) {
      job(in);
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
  int64_t free_slots() {
    int64_t free = 0;
    inside([&](const Scheduler::Inside& in) { free = in.free_slots; });
    return free;
  }
  std::optional<Error> rollback(const std::string& session, int64_t tokens) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::optional<Error> error;
    scheduler.rollback(session, tokens, [&](const Error* e) {
      const std::lock_guard lock(mutex);
      if (e != nullptr) error = *e;
      done = true;
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    return error;
  }
  ParkedState parked(const std::string& session) {
    ParkedState state;
    inside([&](const Scheduler::Inside& in) {
      if (const auto leased = in.sessions.lease(session)) state = *leased;
      in.sessions.release(session);
    });
    return state;
  }

  static EngineOptions engine_options(int32_t slots, int64_t block) {
    EngineOptions options;
    options.slots = slots;
    options.block = block;
    return options;
  }

  std::unique_ptr<Engine> engine;
  Scheduler scheduler;
  std::map<const Recorder*, Scheduler::Ticket> tickets;

 private:
  std::vector<std::shared_ptr<Recorder>> kept_;
  std::thread thread_;
};

inline ServeRequest serve(std::vector<int32_t> prompt, int64_t max_tokens, uint64_t seed = 0) {
  ServeRequest r;
  r.generation.prompt = std::move(prompt);
  r.generation.max_tokens = max_tokens;
  r.generation.ignore_eos = true;
  r.generation.want_logprobs = true;
  r.generation.sampling.seed = seed;
  r.generation.sampling.temperature = 1;
  return r;
}

}  // namespace adder::testing
