// One request on its way through the scheduler. Everything but the ticket and the flag belongs to
// the scheduler's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/sequence.h"
#include "engine/serve_request.h"

namespace adder {

// Goes through stages: parts of a prompt (for a rollback also parts that were generated before)
// advance one conversation; then the answers go on from copies of it.
class ServedRequest {
 public:
  using Clock = std::chrono::steady_clock;

  ServedRequest(ServeRequest ask, std::shared_ptr<RequestListener> listener);
  ServedRequest(std::string session, int64_t rollback_tokens,
                std::function<void(const Error*)> done);

  uint64_t ticket = 0;
  int n() const { return ask_.n; }
  int priority() const { return ask_.priority; }
  Clock::time_point deadline() const { return ask_.deadline; }
  // Slots that it will still take.
  int64_t pending_slots() const;
  const RequestUsage& usage() const { return usage_; }

  enum class End : uint8_t { kNone, kFinished, kCancelled, kFailed };
  End ended() const { return ended_; }

  // Takes the session, so that no other request can. Fails the request when it cannot be had.
  void reserve(ServeContext& context);
  // Has its slots: begins with the longest state that is known.
  void begin(ServeContext& context);
  // The sequences to advance next.
  void collect(std::vector<Sequence*>& order) const;
  // Tells what came of a step and goes on to the next stage.
  void after_step(ServeContext& context);
  // Answers that run end at the next step; one that waits ends now.
  void cancel(ServeContext& context);
  void fail(ServeContext& context, const Error& error);

 private:
  // A sequence of the current stage with what it refers to.
  struct Lane {
    int choice = 0;
    GenerationRequest generation;
    Conversation conversation;  // of an answer; a part of the prompt works on base_
    std::unique_ptr<Sequence> sequence;
    std::string text;  // since the last token that was told
    size_t told = 0;   // tokens
    bool finished = false;
    int64_t measure_at = 0;  // length of the conversation
  };

  bool is_rollback() const { return listener_ == nullptr; }
  bool has_session() const { return !ask_.session.empty(); }
  void next_stage(ServeContext& context);
  void start_part(ServeContext& context, Replay::Part part);
  void part_done(ServeContext& context, Lane& lane);
  void start_answers(ServeContext& context);
  void tell(ServeContext& context, Lane& lane);
  void answer_done(ServeContext& context, Lane& lane);
  void finish(ServeContext& context, End end);
  void forget(ServeContext& context);
  std::pair<int64_t, int64_t> snapshot_places(const ServeContext& context) const;
  void set_cut(const ServeContext& context, Sequence& sequence) const;
  void keep_prefix(ServeContext& context, const Conversation& conversation);
  bool check_state(ServeContext& context, Lane& lane);

  ServeRequest ask_;
  std::shared_ptr<RequestListener> listener_;      // null for a rollback
  std::function<void(const Error*)> rolled_back_;  // null for a request
  int64_t rollback_tokens_ = 0;
  std::atomic<bool> cancelled_ = false;
  bool reserved_ = false, begun_ = false, answering_ = false;
  End ended_ = End::kNone;

  std::shared_ptr<const ParkedState> from_;  // what the session, or the rollback, begins with
  std::deque<Replay::Part> parts_;           // still to be fed
  Conversation base_;
  std::vector<int32_t> tokens_;  // that base_ has taken in, or will have with the current part
  std::vector<std::unique_ptr<Lane>> lanes_;
  RequestUsage usage_;
  Clock::time_point arrived_ = Clock::now(), admitted_{}, first_token_{};
};

}  // namespace adder
