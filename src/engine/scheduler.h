// Many requests on one engine: admission, continuous batching, prefix reuse, sessions, monitors.
//
// One thread, which calls run(), owns the engine; everything else is thread-safe. A step is shared
// by all sequences that generate and by at most one block of prompts, so that a long prompt delays
// a neighbour's next token by one block at most. The bits of an answer do not depend on its
// company, on the cache, or on the order of arrival.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/serve_request.h"

namespace adder {

class ServedRequest;

struct SchedulerStats {
  int64_t waiting = 0, running = 0;  // requests
  int64_t slots = 0, free_slots = 0;
  uint64_t requests = 0;  // that were accepted; each ends in one of the three ways that follow
  uint64_t finished = 0, cancelled = 0, failed = 0;
  uint64_t refused = 0;                                                 // by submit()
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;  // of requests that ended
  uint64_t steps = 0;
  double busy_s = 0;  // in steps
  StateCacheStats cache;
  int64_t sessions = 0;
  uint64_t session_bytes = 0;
  uint64_t measurements = 0, non_finite = 0;  // of states
  float max_state_norm = 0;                   // of the sequences that run
};

class Scheduler {
 public:
  using Ticket = uint64_t;
  using Clock = std::chrono::steady_clock;
  // What only the scheduler's thread may touch.
  struct Inside {
    Engine& engine;
    StateCache& cache;
    SessionStore& sessions;
    const StateMonitor& monitor;
    int64_t free_slots;  // that no request has a claim on
  };

  // Throws Error(kIo) when the folder for sessions cannot be used.
  Scheduler(Engine& engine, const SchedulerOptions& options);
  ~Scheduler();

  // Throws Error(kBadInput) for a bad request, Error(kBusy) when the queue is full or the scheduler
  // is stopping. What is found later comes through the listener's on_error(): an unknown session
  // (kNotFound), one that is in use (kBusy).
  Ticket submit(ServeRequest request, std::shared_ptr<RequestListener> listener);
  // Ends a request within one step: its answers finish with kCancelled, then on_done. A ticket that
  // has just ended is ignored. A session stays what it was before a request that is cancelled.
  void cancel(Ticket ticket);
  // Runs `job` between two steps; jobs run in order, and one that a job posts runs after the next
  // step. The job handles its own errors.
  void post(std::function<void(const Inside&)> job);
  // Takes the session back by `tokens` to exactly the state that it had there; `done` is called on
  // the scheduler's thread with null or the error. Shares steps with everybody else.
  Ticket rollback(const std::string& session, int64_t tokens,
                  std::function<void(const Error*)> done);

  // Works until stop(); with nothing to do it sleeps.
  void run();
  // No new requests. run() returns when those that it has are done, at `deadline` the latest: what
  // is left then fails with Error(kBusy). May be called again with an earlier deadline.
  void stop(Clock::time_point deadline);

  // At most a tenth of a second old.
  SchedulerStats stats() const;

 private:
  using Requests = std::vector<std::unique_ptr<ServedRequest>>;

  Ticket enqueue(std::unique_ptr<ServedRequest> request);
  void take_news();
  void take_request(std::unique_ptr<ServedRequest> request);
  void cancel_now(Ticket ticket);
  void admit();
  int64_t free_slots() const;
  void expire();
  void step();
  void fail_running(const Error& error);
  void remove_done();
  void fail_all(const Error& error);
  void sleep();
  void publish();

  Engine& engine_;
  const SchedulerOptions options_;
  StateCache cache_;
  SessionStore sessions_;
  StateMonitor monitor_;
  ServeContext context_;

  // The scheduler's thread only.
  Requests waiting_, running_;  // waiting: in the order in which they will be admitted
  std::vector<Sequence*> order_;
  SchedulerStats counts_;
  Clock::time_point published_at_{};
  Clock::time_point stop_seen_ = Clock::time_point::max();  // max: nobody has called stop()

  mutable std::mutex mutex_;  // for all below
  std::condition_variable wake_;
  std::deque<std::unique_ptr<ServedRequest>> inbox_;
  std::vector<Ticket> cancels_;
  std::deque<std::function<void(const Inside&)>> jobs_;
  int64_t queued_ = 0;  // in inbox_ and waiting_
  uint64_t refused_ = 0;
  Ticket last_ticket_ = 0;
  bool stopping_ = false;
  Clock::time_point stop_at_ = Clock::time_point::max();
  SchedulerStats published_;
  std::atomic<bool> news_ =
      false;  // so that a step need not take the lock to see that there is none
};

}  // namespace adder
