#include "engine/shared_engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "engine/shared_body.h"

namespace adder {

void QueueMutex::lock() {
  std::unique_lock lock(mutex_);
  const uint64_t mine = next_++;
  turn_.wait(lock, [&] { return serving_ == mine; });
}

void QueueMutex::unlock() {
  {
    const std::scoped_lock lock(mutex_);
    ++serving_;
  }
  turn_.notify_all();
}

namespace {

std::unique_ptr<Engine> with_slots(std::unique_ptr<Engine> engine) {
  ADDER_CHECK(engine->states().slots() >= 2, "slots: expected at least 2, got {}",
              engine->states().slots());
  return engine;
}

}  // namespace

SharedEngine::SharedEngine(std::unique_ptr<Engine> engine)
    : engine_(with_slots(std::move(engine))),
      slots_(engine_->states().slots() - 1),
      stepper_(*engine_) {}

SharedEngine::~SharedEngine() = default;

void SharedEngine::advance(std::span<SharedSequence* const> sequences) {
  std::vector<Body*> mine;
  for (SharedSequence* s : sequences) {
    if (!s->done()) mine.push_back(s->body_.get());
  }
  {
    const std::scoped_lock lock(list_mutex_);
    for (const Body* body : mine) {
      if (body->waiting) fail(ErrorCode::kBusy, "sequence: another thread is waiting for it");
    }
    waiting_.insert(waiting_.end(), mine.begin(), mine.end());
    for (Body* body : mine) body->waiting = true;
  }
  for (;;) {
    const std::scoped_lock drive(drive_mutex_);
    if (std::none_of(mine.begin(), mine.end(), [](const Body* b) { return b->waiting; })) return;
    step_waiting();
  }
}

void SharedEngine::finish(std::span<SharedSequence* const> sequences, const Poll& poll) {
  std::vector<SharedSequence*> active;
  for (;;) {
    active.clear();
    for (SharedSequence* s : sequences) {
      if (s->failed()) return;
      if (!s->done() && static_cast<int32_t>(active.size()) < slots_) active.push_back(s);
    }
    if (active.empty()) return;
    advance(active);
    poll();
  }
}

// Those that have a slot come first, then those that have waited the longest.
std::vector<SharedEngine::Body*> SharedEngine::choose_waiting() {
  std::vector<std::unique_ptr<Body>> gone;
  std::vector<Body*> chosen;
  {
    const std::scoped_lock lock(list_mutex_);
    gone.swap(gone_);
    std::stable_partition(waiting_.begin(), waiting_.end(),
                          [](const Body* b) { return static_cast<bool>(b->conversation.state); });
    const auto count = std::min(waiting_.size(), static_cast<size_t>(slots_));
    chosen.assign(waiting_.begin(), waiting_.begin() + static_cast<int64_t>(count));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<int64_t>(count));
  }
  for (const auto& body : gone) std::erase(residents_, body.get());
  return chosen;
}

// Whatever happens, it is told to the owners and not to whoever happens to drive the engine.
void SharedEngine::step_waiting() {
  const std::vector<Body*> chosen = choose_waiting();
  std::vector<Sequence*> order;
  try {
    for (Body* body : chosen) {
      if (enter(*body, chosen)) order.push_back(body->sequence.get());
    }
    stepper_.step(order);
  } catch (const std::exception& e) {
    for (Body* body : chosen) {
      if (!body->error) body->error = Error(ErrorCode::kInternal, e.what());
    }
  }
  for (Body* body : chosen) {
    if (body->error || body->sequence->done()) complete(*body);
  }
  const std::scoped_lock lock(list_mutex_);
  for (Body* body : chosen) body->waiting = false;
}

// Gives it a slot and its state; false when that cannot be done, with the reason in `error`.
bool SharedEngine::enter(Body& body, std::span<Body* const> chosen) {
  try {
    if (!body.conversation.state) {
      make_room(chosen);
      if (!body.sequence) {
        const auto& from = body.request.from.state();
        if (from) body.conversation = unpark(*engine_, *from);
        body.sequence = std::make_unique<Sequence>(*engine_, body.request.generation);
        if (body.request.generation.prompt.empty()) stepper_.start(*body.sequence);
      } else {
        StateHandle slot = engine_->states().acquire();
        engine_->states().restore(slot, body.away);
        body.conversation.state = std::move(slot);
        body.away = {};
      }
    }
    std::erase(residents_, &body);
    residents_.push_back(&body);
    return true;
  } catch (const Error& e) {
    body.error = e;
    return false;
  }
}

void SharedEngine::make_room(std::span<Body* const> chosen) {
  if (static_cast<int32_t>(residents_.size()) < slots_) return;
  const auto idle = std::find_if(residents_.begin(), residents_.end(), [&](Body* body) {
    return std::find(chosen.begin(), chosen.end(), body) == chosen.end();
  });
  ADDER_CHECK(idle != residents_.end(), "slots: expected a free one of {}, got none", slots_);
  Body& body = **idle;
  body.away.resize(engine_->states().snapshot_bytes());
  engine_->states().snapshot(body.conversation.state, body.away);
  leave(body);
}

void SharedEngine::leave(Body& body) {
  body.conversation.state = StateHandle();
  std::erase(residents_, &body);
}

void SharedEngine::complete(Body& body) {
  if (!body.error) {
    Sequence& sequence = *body.sequence;
    if (sequence.failed()) {
      body.error = sequence.error();
      body.not_finite = !body.error;
    } else {
      sequence.close();
      body.result = sequence.take_result();
    }
  }
  if (body.request.keep_state && !body.error && !body.not_finite) {
    // A request that was cancelled has tokens that the state never saw.
    const GenerationRequest& request = body.request.generation;
    const auto& from = body.request.from.state();
    std::vector<int32_t> tokens = from ? from->tokens : std::vector<int32_t>();
    const auto before = tokens.size();
    const auto seen =
        static_cast<size_t>(body.conversation.length - (from ? from->length() : int64_t{0}));
    tokens.insert(tokens.end(), request.prompt.begin(), request.prompt.end());
    tokens.insert(tokens.end(), body.result.tokens.begin(), body.result.tokens.end());
    tokens.resize(before + seen);
    std::vector<Stretch> stretches;
    const size_t fed = std::min(seen, request.prompt.size());
    if (fed > 0) stretches.push_back({static_cast<int64_t>(fed), false});
    if (seen > fed) stretches.push_back({static_cast<int64_t>(seen - fed), true});
    body.history = body.request.from;
    body.history.advance(park(*engine_, body.conversation, std::move(tokens)), stretches);
  }
  leave(body);
  body.sequence = nullptr;
  body.request.from.clear();
  body.done = true;
}

// The work before may take long, so this wait looks at poll() too.
void SharedEngine::begin_work(const Poll& poll) {
  for (;;) {
    {
      std::unique_lock lock(list_mutex_);
      if (worked_.wait_for(lock, std::chrono::milliseconds(20), [&] { return !working_; })) {
        working_ = true;
        return;
      }
    }
    poll();
  }
}

void SharedEngine::end_work() {
  {
    const std::scoped_lock lock(list_mutex_);
    working_ = false;
  }
  worked_.notify_one();
}

void SharedEngine::run(const Work& work, const Poll& poll) {
  begin_work(poll);
  const auto end = [](SharedEngine* engine) { engine->end_work(); };
  const std::unique_ptr<SharedEngine, decltype(end)> working(this, end);
  std::unique_lock drive(drive_mutex_);
  work(*engine_, [&] {
    drive.unlock();
    try {
      poll();
    } catch (...) {
      drive.lock();  // the slot goes back to the pool on the way out
      throw;
    }
    drive.lock();
  });
}

ConversationHistory SharedEngine::roll_back(const std::shared_ptr<SharedEngine>& engine,
                                            const ConversationHistory& history, int64_t tokens,
                                            const Poll& poll) {
  Replay replay = history.plan_rollback(tokens);
  ConversationHistory at(replay.from);
  for (Replay::Part& part : replay.parts) {
    SharedRequest request;
    request.from = at;
    request.keep_state = true;
    feed_part(std::move(part), request.generation);
    SharedSequence sequence(engine, std::move(request));
    SharedSequence* const one = &sequence;
    engine->finish(std::span(&one, 1), poll);
    at = sequence.history();
  }
  ConversationHistory result = history;
  result.rolled_back(at.state());
  return result;
}

}  // namespace adder
