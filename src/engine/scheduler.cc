#include "engine/scheduler.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/error.h"
#include "engine/served_request.h"

namespace adder {
namespace {

using Clock = Scheduler::Clock;

constexpr auto kPublishEvery = std::chrono::milliseconds(50);
// For a request that fits only when somebody outside gives a slot back.
constexpr auto kRetryAdmission = std::chrono::milliseconds(5);

Error out_of_memory() {
  return {ErrorCode::kBusy, "out of memory; try again later"};
}

}  // namespace

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      cache_(options.cache_bytes),
      sessions_(engine, options.session_dir, options.session_bytes),
      context_{engine_, cache_, sessions_, monitor_, options_, Stepper(engine_)} {
  ADDER_CHECK(options.max_queue >= 0, "max_queue: expected 0 or more, got {}", options.max_queue);
  order_.reserve(static_cast<size_t>(engine.states().slots()));
  publish();
}

Scheduler::~Scheduler() = default;

Scheduler::Ticket Scheduler::enqueue(std::unique_ptr<ServedRequest> request) {
  const std::lock_guard lock(mutex_);
  if (stopping_) {
    ++refused_;
    fail(ErrorCode::kBusy, "the server is shutting down");
  }
  if (queued_ >= options_.max_queue + published_.free_slots) {
    ++refused_;
    fail(ErrorCode::kBusy, "queue: {} requests are waiting, which is the limit; try again later",
         queued_);
  }
  ++queued_;
  const Ticket ticket = request->ticket = ++last_ticket_;
  inbox_.push_back(std::move(request));
  news_ = true;
  wake_.notify_one();
  return ticket;
}

Scheduler::Ticket Scheduler::submit(ServeRequest request,
                                    std::shared_ptr<RequestListener> listener) {
  const int32_t slots = engine_.states().slots();
  ADDER_CHECK(listener != nullptr, "submit: expected a listener, got none");
  check_options(engine_, request.generation);
  ADDER_CHECK(request.n >= 1 && request.n <= slots, "n: expected 1 to {}, got {}", slots,
              request.n);
  ADDER_CHECK(request.session.empty() || request.n == 1,
              "n: expected 1 with a session, which goes on with one answer, got {}", request.n);
  ADDER_CHECK(!request.session.empty() || !request.generation.prompt.empty(),
              "prompt: expected at least 1 token, got none");
  return enqueue(std::make_unique<ServedRequest>(std::move(request), std::move(listener)));
}

Scheduler::Ticket Scheduler::rollback(const std::string& session, int64_t tokens,
                                      std::function<void(const Error*)> done) {
  ADDER_CHECK(tokens >= 0, "tokens: expected 0 or more, got {}", tokens);
  return enqueue(std::make_unique<ServedRequest>(session, tokens, std::move(done)));
}

void Scheduler::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(ticket);
  news_ = true;
  wake_.notify_one();
}

void Scheduler::post(std::function<void(const Inside&)> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  news_ = true;
  wake_.notify_one();
}

void Scheduler::stop(Clock::time_point deadline) {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  stop_at_ = std::min(stop_at_, deadline);
  news_ = true;
  wake_.notify_one();
}

SchedulerStats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats s = published_;
  s.waiting = queued_;
  s.refused = refused_;
  s.requests = last_ticket_;
  return s;
}

void Scheduler::run() {
  for (;;) {
    take_news();
    expire();
    admit();
    if (running_.empty()) {
      if (stop_seen_ != Clock::time_point::max() && waiting_.empty() && !news_) break;
      sleep();
      continue;
    }
    step();
    if (Clock::now() - published_at_ > kPublishEvery) publish();
  }
  publish();
}

// Requests, cancellations and jobs since the last time.
void Scheduler::take_news() {
  if (news_.exchange(false)) {
    std::deque<std::unique_ptr<ServedRequest>> arrived;
    std::vector<Ticket> cancelled;
    std::deque<std::function<void(const Inside&)>> jobs;
    {
      const std::lock_guard lock(mutex_);
      arrived.swap(inbox_);
      cancelled.swap(cancels_);
      jobs.swap(jobs_);
      if (stopping_) stop_seen_ = stop_at_;
    }
    for (auto& request : arrived) take_request(std::move(request));
    for (const Ticket ticket : cancelled) cancel_now(ticket);
    for (const auto& job : jobs) job({engine_, cache_, sessions_, monitor_, free_slots()});
  }
  if (Clock::now() >= stop_seen_) {
    fail_all(Error(ErrorCode::kBusy, "the server is shutting down"));
  }
}

void Scheduler::take_request(std::unique_ptr<ServedRequest> request) {
  request->reserve(context_);
  const int priority = request->priority();
  const auto behind = std::find_if(waiting_.begin(), waiting_.end(),
                                   [&](const auto& other) { return other->priority() < priority; });
  waiting_.insert(behind, std::move(request));
}

void Scheduler::cancel_now(Ticket ticket) {
  for (Requests* requests : {&waiting_, &running_}) {
    for (const auto& request : *requests) {
      if (request->ticket == ticket) request->cancel(context_);
    }
  }
}

int64_t Scheduler::free_slots() const {
  int64_t free = engine_.states().free_slots();
  for (const auto& request : running_) free -= request->pending_slots();
  return free;
}

// Begins waiting requests in their order, as long as the first one fits.
void Scheduler::admit() {
  remove_done();
  while (!waiting_.empty() && waiting_.front()->n() <= free_slots()) {
    std::unique_ptr<ServedRequest> request = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    ServedRequest& begun = *running_.emplace_back(std::move(request));
    try {
      begun.begin(context_);
    } catch (const Error& e) {
      begun.fail(context_, e);
    } catch (const std::bad_alloc&) {
      cache_.clear();
      begun.fail(context_, out_of_memory());
    }
    remove_done();
    const int64_t free = free_slots();
    const std::lock_guard lock(mutex_);
    --queued_;
    published_.free_slots = free;  // what enqueue() goes by
  }
}

void Scheduler::expire() {
  const Clock::time_point now = Clock::now();
  const Error error(ErrorCode::kTimeout, "the request took longer than its time limit");
  for (Requests* requests : {&waiting_, &running_}) {
    for (const auto& request : *requests) {
      if (request->ended() == ServedRequest::End::kNone && now >= request->deadline()) {
        request->fail(context_, error);
      }
    }
  }
}

// Nobody knows what their states are now.
void Scheduler::fail_running(const Error& error) {
  for (const auto& request : running_) {
    if (request->ended() == ServedRequest::End::kNone) request->fail(context_, error);
  }
}

void Scheduler::step() {
  order_.clear();
  for (const auto& request : running_) request->collect(order_);
  const Clock::time_point begin = Clock::now();
  try {
    context_.stepper.step(order_);
    for (const auto& request : running_) request->after_step(context_);
  } catch (const Error& e) {
    fail_running(e);
  } catch (const std::bad_alloc&) {
    cache_.clear();
    fail_running(out_of_memory());
  }
  counts_.busy_s += std::chrono::duration<double>(Clock::now() - begin).count();
  ++counts_.steps;
  remove_done();
  // Prompts take turns: another one is the first to get the next step's block.
  if (running_.size() > 1) std::rotate(running_.begin(), running_.begin() + 1, running_.end());
}

void Scheduler::remove_done() {
  int64_t waited = 0;
  for (Requests* requests : {&waiting_, &running_}) {
    std::erase_if(*requests, [&](const std::unique_ptr<ServedRequest>& request) {
      const RequestUsage& usage = request->usage();
      switch (request->ended()) {
        case ServedRequest::End::kNone:
          return false;
        case ServedRequest::End::kFinished:
          ++counts_.finished;
          break;
        case ServedRequest::End::kCancelled:
          ++counts_.cancelled;
          break;
        case ServedRequest::End::kFailed:
          ++counts_.failed;
          break;
      }
      counts_.prompt_tokens += static_cast<uint64_t>(usage.prompt_tokens);
      counts_.cached_tokens += static_cast<uint64_t>(usage.cached_tokens);
      counts_.generated_tokens += static_cast<uint64_t>(usage.completion_tokens);
      if (requests == &waiting_) ++waited;
      return true;
    });
  }
  if (waited == 0) return;
  const std::lock_guard lock(mutex_);
  queued_ -= waited;
}

void Scheduler::fail_all(const Error& error) {
  for (Requests* requests : {&waiting_, &running_}) {
    for (const auto& request : *requests) {
      if (request->ended() == ServedRequest::End::kNone) request->fail(context_, error);
    }
  }
  remove_done();
}

void Scheduler::sleep() {
  publish();
  Clock::time_point until = Clock::time_point::max();
  for (const auto& request : waiting_) until = std::min(until, request->deadline());
  if (!waiting_.empty()) until = std::min(until, Clock::now() + kRetryAdmission);
  until = std::min(until, stop_seen_);
  std::unique_lock lock(mutex_);
  const auto woken = [&] { return news_.load(); };
  // wait_until() with the end of time overflows in some libraries.
  if (until == Clock::time_point::max()) {
    wake_.wait(lock, woken);
  } else {
    wake_.wait_until(lock, until, woken);
  }
}

void Scheduler::publish() {
  published_at_ = Clock::now();
  counts_.running = static_cast<int64_t>(running_.size());
  counts_.slots = engine_.states().slots();
  counts_.free_slots = free_slots();
  counts_.cache = cache_.stats();
  counts_.sessions = sessions_.size();
  counts_.session_bytes = sessions_.bytes();
  counts_.measurements = monitor_.measurements();
  counts_.non_finite = monitor_.non_finite();
  counts_.max_state_norm = monitor_.max_norm();
  const std::lock_guard lock(mutex_);
  published_ = counts_;
}

}  // namespace adder
