// One engine for many threads. Whoever wants a step says so and queues for the engine; the first in
// the queue takes the step for all who wait, so that they share it. There is no thread of its own.
//
// Slots are given to those who take steps: when there are more sequences than slots, the one whose
// last step is the longest ago waits on the host meanwhile. None of this changes a bit of a result.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/conversation_history.h"
#include "engine/stepper.h"

namespace adder {

// A mutex that is given in the order in which it was asked for.
class QueueMutex {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ = 0, serving_ = 0;
};

struct SharedRequest {
  GenerationRequest generation;  // its conversation, on_text, on_prefill and cancel are not used
  ConversationHistory from;      // what it continues
  bool keep_state = false;       // so that history() can be asked for
};

class SharedEngine;

// A request on its way. All methods but cancel() and done() are for one thread at a time.
class SharedSequence {
 public:
  // Throws Error(kBadInput) for a bad request.
  SharedSequence(std::shared_ptr<SharedEngine> engine, SharedRequest request);
  ~SharedSequence();  // does not wait for the engine
  SharedSequence(const SharedSequence&) = delete;
  SharedSequence& operator=(const SharedSequence&) = delete;

  void cancel();  // ends it at its next step
  bool done() const;
  bool failed() const;
  // What has come since the last call: whole UTF-8 characters.
  std::string take_text();
  // Once done. Throw the error that ended it.
  const GenerationResult& result() const;
  const ConversationHistory& history() const;

 private:
  friend class SharedEngine;
  struct Body;
  std::shared_ptr<SharedEngine> engine_;
  std::unique_ptr<Body> body_;
};

class SharedEngine {
 public:
  using Poll = std::function<void()>;  // called where nothing is locked; may throw

  // The engine's slots but one are for sequences, that one for run(): it needs at least 2.
  explicit SharedEngine(std::unique_ptr<Engine> engine);
  ~SharedEngine();

  // Only what never changes: configuration, tokenizer, checks.
  const Engine& engine() const { return *engine_; }
  int32_t slots() const { return slots_; }

  // At least one step with each that is not done. Throws Error(kBusy) when another thread is at it.
  void advance(std::span<SharedSequence* const> sequences);
  // Until all are done or one has failed, slots() of them together; poll() between the steps.
  void finish(std::span<SharedSequence* const> sequences, const Poll& poll);

  // Work that drives the engine itself and may take one slot, one at a time. While work calls
  // pause(), others take their steps, and what it has from step() is lost.
  using Work = std::function<void(Engine& engine, const Poll& pause)>;
  void run(const Work& work, const Poll& poll);

  // What it was `tokens` tokens ago, to the bit, as if it had never seen them.
  // Throws Error(kBadInput) when it has not that many.
  static ConversationHistory roll_back(const std::shared_ptr<SharedEngine>& engine,
                                       const ConversationHistory& history, int64_t tokens,
                                       const Poll& poll);

 private:
  friend class SharedSequence;
  using Body = SharedSequence::Body;

  void begin_work(const Poll& poll);
  void end_work();
  void step_waiting();
  std::vector<Body*> choose_waiting();
  bool enter(Body& body, std::span<Body* const> chosen);
  void make_room(std::span<Body* const> chosen);
  void complete(Body& body);
  void leave(Body& body);

  std::unique_ptr<Engine> engine_;
  const int32_t slots_;

  QueueMutex drive_mutex_;  // for the engine and the two below
  Stepper stepper_;
  std::vector<Body*> residents_;  // that have a slot, the one with the newest step last

  std::mutex list_mutex_;  // for all below; never held while anything is computed
  bool working_ = false;   // somebody is in run()
  std::condition_variable worked_;
  std::vector<Body*> waiting_;
  std::vector<std::unique_ptr<Body>> gone_;  // whose owners have gone; they may hold slots
};

}  // namespace adder
