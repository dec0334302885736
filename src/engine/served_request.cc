#include "engine/served_request.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/error.h"
#include "engine/logit_editor.h"

namespace adder {
namespace {

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

ServedRequest::ServedRequest(ServeRequest ask, std::shared_ptr<RequestListener> listener)
    : ask_(std::move(ask)), listener_(std::move(listener)) {}

ServedRequest::ServedRequest(std::string session, int64_t rollback_tokens,
                             std::function<void(const Error*)> done)
    : rolled_back_(std::move(done)), rollback_tokens_(rollback_tokens) {
  ask_.session = std::move(session);
}

int64_t ServedRequest::pending_slots() const {
  if (!answering_) return ask_.n - (base_.state ? 1 : 0);
  int64_t pending = 0;
  bool shared = false;  // the slot of the prompt's end, by all answers that have not stepped yet
  for (const auto& lane : lanes_) {
    if (!lane->conversation.state || lane->conversation.state.handles() == 1) continue;
    ++pending;
    shared = true;
  }
  return shared ? pending - 1 : 0;
}

void ServedRequest::reserve(ServeContext& context) {
  if (!has_session()) return;
  try {
    from_ = context.sessions.lease(ask_.session);
    reserved_ = true;
    if (is_rollback()) {
      Replay replay = context.sessions.plan_rollback(ask_.session, rollback_tokens_);
      from_ = std::move(replay.from);
      parts_.assign(replay.parts.begin(), replay.parts.end());
    } else {
      ADDER_CHECK(from_ != nullptr || !ask_.generation.prompt.empty(),
                  "prompt: expected at least 1 token for a session that is empty, got none");
    }
  } catch (const Error& e) {
    fail(context, e);
  }
}

void ServedRequest::begin(ServeContext& context) {
  begun_ = true;
  admitted_ = first_token_ = Clock::now();
  if (!is_rollback()) {
    std::vector<int32_t>& prompt = ask_.generation.prompt;
    const ParkedState* known = from_.get();
    if (!has_session() && ask_.use_cache) known = context.cache.find(prompt);
    if (known != nullptr) base_ = unpark(context.engine, *known);
    if (known != nullptr) tokens_ = known->tokens;
    usage_.cached_tokens = base_.length;
    const size_t skip = has_session() ? 0 : static_cast<size_t>(base_.length);
    if (skip < prompt.size()) {
      parts_.push_back({{prompt.begin() + static_cast<int64_t>(skip), prompt.end()}, false});
    }
    usage_.prompt_tokens = base_.length + static_cast<int64_t>(prompt.size() - skip);
    listener_->on_start(usage_.prompt_tokens, usage_.cached_tokens);
  } else if (from_ && !parts_.empty()) {
    base_ = unpark(context.engine, *from_);
    tokens_ = from_->tokens;
  }
  next_stage(context);
}

void ServedRequest::collect(std::vector<Sequence*>& order) const {
  for (const auto& lane : lanes_) {
    if (!lane->finished) order.push_back(lane->sequence.get());
  }
}

void ServedRequest::next_stage(ServeContext& context) {
  lanes_.clear();
  if (!parts_.empty()) {
    Replay::Part part = std::move(parts_.front());
    parts_.pop_front();
    start_part(context, std::move(part));
    return;
  }
  if (!is_rollback()) return start_answers(context);
  if (base_.state) {
    from_ = std::make_shared<const ParkedState>(park(context.engine, base_, std::move(tokens_)));
  }
  context.sessions.rolled_back(ask_.session, from_);
  reserved_ = false;
  finish(context, End::kFinished);
}

// Feeds tokens to base_: as a prompt, or one by one as when they were generated.
void ServedRequest::start_part(ServeContext& context, Replay::Part part) {
  tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
  Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
  GenerationRequest& g = lane.generation;
  g.conversation = &base_;
  g.cancel = &cancelled_;
  feed_part(std::move(part), g);
  lane.sequence = std::make_unique<Sequence>(context.engine, g);
  if (g.prompt.empty()) context.stepper.start(*lane.sequence);
  set_cut(context, *lane.sequence);
}

// The last length of the prompt at which a snapshot is exact, and the distance between those before
// it (0: there are none).
std::pair<int64_t, int64_t> ServedRequest::snapshot_places(const ServeContext& context) const {
  const int64_t align = exact_alignment(context.engine.config());
  return {static_cast<int64_t>(tokens_.size()) / align * align,
          context.options.snapshot_every / align * align};
}

// Where the next piece of a prompt must end so that a snapshot can be taken there.
void ServedRequest::set_cut(const ServeContext& context, Sequence& sequence) const {
  if (has_session() || !ask_.use_cache) return;
  const auto [end, every] = snapshot_places(context);
  int64_t cut = end;
  if (every > 0) cut = std::min(end, (base_.length / every + 1) * every);
  if (cut > base_.length) sequence.set_cut(cut);
}

// base_ has come to a length that other prompts may share.
void ServedRequest::keep_prefix(ServeContext& context, const Conversation& c) {
  if (has_session() || !ask_.use_cache) return;
  const auto [end, every] = snapshot_places(context);
  const bool wanted = c.length == end || (every > 0 && c.length % every == 0);
  if (!wanted || c.length == 0) return;
  const auto prefix = std::span(tokens_).first(static_cast<size_t>(c.length));
  if (c.length <= usage_.cached_tokens || context.cache.contains(prefix)) return;
  try {
    context.cache.store(park(context.engine, c, {prefix.begin(), prefix.end()}));
  } catch (const std::bad_alloc&) {
    context.cache.clear();  // the memory is needed for what is asked for, not for what might be
  }
}

void ServedRequest::after_step(ServeContext& context) {
  for (size_t i = 0; i < lanes_.size() && ended_ == End::kNone; ++i) {
    Lane& lane = *lanes_[i];
    if (lane.finished) continue;
    Sequence& s = *lane.sequence;
    if (s.failed()) {
      if (s.error()) return fail(context, *s.error());
      context.monitor.count_non_finite();
      return fail(context, Error(ErrorCode::kInternal,
                                 fmt::format("the model's output is not finite after {} tokens",
                                             s.conversation().length)));
    }
    if (!check_state(context, lane)) return;
    if (answering_) {
      tell(context, lane);
    } else if (s.done()) {
      return part_done(context, lane);
    } else {
      keep_prefix(context, base_);
      set_cut(context, s);
    }
  }
}

void ServedRequest::part_done(ServeContext& context, Lane& lane) {
  lane.sequence->close();
  if (lane.sequence->result().finish == FinishReason::kCancelled) {
    return finish(context, End::kCancelled);
  }
  keep_prefix(context, base_);
  next_stage(context);
}

void ServedRequest::start_answers(ServeContext& context) {
  answering_ = true;
  for (int i = 0; i < ask_.n; ++i) {
    Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>());
    lane.choice = i;
    lane.conversation = base_;
    GenerationRequest& g = lane.generation;
    g = ask_.generation;
    g.prompt.clear();
    g.sampling.seed += static_cast<uint64_t>(i);
    if (ask_.generation.editor) g.editor = ask_.generation.editor->clone();
    g.conversation = &lane.conversation;
    g.finish_state = has_session();
    g.cancel = &cancelled_;
    g.on_text = [&lane](std::string_view text) { lane.text += text; };
    lane.sequence = std::make_unique<Sequence>(context.engine, g);
  }
  base_ = Conversation();
  for (const auto& lane : lanes_) context.stepper.start(*lane->sequence);
  after_step(context);
}

void ServedRequest::tell(ServeContext& context, Lane& lane) {
  const Sequence& s = *lane.sequence;
  const GenerationResult& r = s.result();
  if (lane.told < r.tokens.size()) {
    if (usage_.completion_tokens == 0) first_token_ = Clock::now();
    const TokenLogprobs* logprobs =
        lane.generation.want_logprobs ? &r.logprobs[lane.told] : nullptr;
    listener_->on_token(lane.choice, r.tokens[lane.told], lane.text, logprobs);
    lane.text.clear();
    ++lane.told;
    ++usage_.completion_tokens;
  }
  if (s.done()) answer_done(context, lane);
}

void ServedRequest::answer_done(ServeContext& context, Lane& lane) {
  Sequence& s = *lane.sequence;
  s.close();
  const GenerationResult& r = s.result();
  context.monitor.forget(ticket, lane.choice);
  const bool cancelled = r.finish == FinishReason::kCancelled;
  // What the state has seen: all of the answer but a last token that nobody needed.
  Conversation& c = lane.conversation;
  const auto answered = c.length - usage_.prompt_tokens;
  if (!cancelled && (has_session() || (ask_.use_cache && answered > 0 &&
                                       decode_is_exact(context.engine.config())))) {
    std::vector<int32_t> all = tokens_;
    all.insert(all.end(), r.tokens.begin(), r.tokens.begin() + answered);
    ParkedState parked = park(context.engine, c, std::move(all));
    if (has_session()) {
      std::vector<Stretch> stretches = {{usage_.prompt_tokens - usage_.cached_tokens, false},
                                        {answered, true}};
      std::erase_if(stretches, [](const Stretch& stretch) { return stretch.tokens == 0; });
      context.sessions.advance(ask_.session, std::move(parked), stretches);
      reserved_ = false;
    } else {
      context.cache.store(std::move(parked));
    }
  }
  c = Conversation();  // the slot is free for others while this request's other answers go on
  lane.finished = true;
  listener_->on_finish(lane.choice, r.finish, lane.text);
  const bool all_done =
      std::all_of(lanes_.begin(), lanes_.end(), [](const auto& other) { return other->finished; });
  if (all_done) finish(context, cancelled ? End::kCancelled : End::kFinished);
}

// Looks at the state now and then; false when the request failed for it.
bool ServedRequest::check_state(ServeContext& context, Lane& lane) {
  const int64_t every = context.options.monitor_every;
  const Conversation& c = lane.sequence->conversation();
  if (every <= 0 || c.length < lane.measure_at || lane.sequence->done()) return true;
  if (lane.measure_at == 0 && c.length < every) {
    lane.measure_at = every;
    return true;
  }
  lane.measure_at = c.length + every;
  const SequenceState& state =
      context.monitor.measure(context.engine, ticket, lane.choice, ask_.session, c.state, c.length);
  if (!state.finite()) {
    context.monitor.count_non_finite();
    fail(context, Error(ErrorCode::kInternal,
                        fmt::format("the state is not finite after {} tokens", c.length)));
    return false;
  }
  const double limit = context.options.max_state_norm;
  if (limit > 0 && state.max_norm() > limit) {
    fail(context, Error(ErrorCode::kInternal,
                        fmt::format("the state's norm is {} after {} tokens, the limit is {}",
                                    state.max_norm(), c.length, limit)));
    return false;
  }
  return true;
}

void ServedRequest::cancel(ServeContext& context) {
  cancelled_ = true;
  if (!begun_ && ended_ == End::kNone) finish(context, End::kCancelled);
}

// Gives back everything but what the listener has to be told.
void ServedRequest::forget(ServeContext& context) {
  for (const auto& lane : lanes_) context.monitor.forget(ticket, lane->choice);
  lanes_.clear();
  base_ = Conversation();
  from_ = nullptr;
  if (reserved_) context.sessions.release(ask_.session);
  reserved_ = false;
}

void ServedRequest::finish(ServeContext& context, End end) {
  ended_ = end;
  const Clock::time_point now = Clock::now();
  if (!begun_) admitted_ = now;
  if (usage_.completion_tokens == 0) first_token_ = now;
  usage_.queue_s = seconds(admitted_ - arrived_);
  usage_.prefill_s = seconds(first_token_ - admitted_);
  usage_.decode_s = seconds(now - first_token_);
  const bool before_answers = lanes_.empty() || !answering_;
  forget(context);
  if (is_rollback()) {
    const Error cancelled(ErrorCode::kBusy, "rollback: cancelled");
    rolled_back_(end == End::kCancelled ? &cancelled : nullptr);
    return;
  }
  if (before_answers) {
    for (int i = 0; i < ask_.n; ++i) listener_->on_finish(i, FinishReason::kCancelled, {});
  }
  listener_->on_done(usage_);
}

void ServedRequest::fail(ServeContext& context, const Error& error) {
  const Error kept = error;  // it may belong to a sequence that goes now
  ended_ = End::kFailed;
  forget(context);
  if (is_rollback()) {
    rolled_back_(&kept);
  } else {
    listener_->on_error(kept);
  }
}

}  // namespace adder
