// Generating in the backend's decode loop: the host follows some steps behind.

#include <algorithm>

#include "engine/stepper.h"

namespace adder {

using Phase = Sequence::Phase;

bool Stepper::can_decode_ahead(const Sequence& s) {
  const GenerationRequest& r = *s.request_;
  // finishes_state: the logits after the last token are asked for.
  return s.phase_ == Phase::kDecode && !s.cancelled() && r.editor == nullptr && !r.want_logprobs &&
         r.stop.empty() && !s.finishes_state() &&
         (r.sampling.repeat_penalty == 1.0f || r.sampling.repeat_last_n <= kDecodeRecent);
}

DecodeRow Stepper::decode_row(Sequence& s) const {
  const GenerationRequest& r = *s.request_;
  engine_.states().make_unique(s.conversation_->state);
  DecodeRow row;
  row.slot = s.conversation_->state.slot();
  row.token = s.history_.back();
  row.sampling = s.sample_params();
  if (r.sampling.repeat_penalty != 1.0f) row.repeat_last_n = r.sampling.repeat_last_n;
  row.seed = r.sampling.seed;
  row.index = s.random_index();
  row.max_tokens = r.max_tokens - static_cast<int64_t>(s.result_.tokens.size());
  return row;
}

void Stepper::take_decoded(const Engine& engine, Sequence& s, int32_t id) {
  if (id == kDecodeInert) return;
  s.advance(std::span(s.history_).last(1));
  if (id == kDecodeNotFinite) {
    s.failed_ = true;
    s.phase_ = Phase::kDone;
  } else {
    s.accept(engine, id);
  }
}

bool Stepper::decode_ahead(std::span<Sequence* const> sequences) {
  stepping_.clear();
  for (Sequence* s : sequences) {
    if (s->done()) continue;
    if (!can_decode_ahead(*s)) return false;
    stepping_.push_back(s);
  }
  if (stepping_.empty()) return false;
  DecodeLoop* loop = engine_.decode_loop(static_cast<int64_t>(stepping_.size()));
  if (loop == nullptr) return false;

  int64_t most = 0;
  std::vector<DecodeRow> rows;
  std::vector<std::vector<int32_t>> stop_ids;  // of the rows
  for (Sequence* s : stepping_) {
    rows.push_back(decode_row(*s));
    most = std::max(most, rows.back().max_tokens);
    auto& stops = stop_ids.emplace_back(s->request_->stop_tokens);
    if (!s->request_->ignore_eos)
      stops.insert(stops.end(), engine_.eos_ids().begin(), engine_.eos_ids().end());
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i].stop_ids = stop_ids[i];
  loop->start(rows);
  int64_t enqueued = 0, read = 0;
  bool more = true;
  while (more || read < enqueued) {
    while (more && enqueued < most && enqueued - read < loop->steps_in_flight()) {
      loop->step();
      ++enqueued;
    }
    // What is in flight is taken to the end: the states have it already.
    const auto ids = loop->read();
    ++read;
    for (size_t i = 0; i < rows.size(); ++i) take_decoded(engine_, *stepping_[i], ids[i]);
    const bool all_done = std::all_of(stepping_.begin(), stepping_.end(),
                                      [](const Sequence* s) { return s->done(); });
    if (all_done || std::any_of(stepping_.begin(), stepping_.end(),
                                [](const Sequence* s) { return s->cancelled(); }))
      more = false;
  }
  return true;
}

}  // namespace adder
