#include "engine/stepper.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "engine/logit_editor.h"
#include "engine/logprobs.h"

namespace adder {
namespace {

using Phase = Sequence::Phase;

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

}  // namespace

Stepper::Stepper(Engine& engine) : engine_(engine) {
  const auto slots = static_cast<size_t>(engine.states().slots());
  pieces_.reserve(slots);
  stepping_.reserve(slots);
  rows_.reserve(slots);
  asking_.reserve(slots);
  params_.reserve(slots);
  sampled_.reserve(slots);
}

void Stepper::start(Sequence& s) {
  if (s.cancelled()) return s.end(FinishReason::kCancelled);
  if (s.request_->max_tokens == 0) {
    s.phase_ = Phase::kDone;
    return;
  }
  asking_.assign(1, &s);
  choose(engine_.import_logits(s.conversation_->logits));
}

bool Stepper::step(std::span<Sequence* const> sequences) {
  if (!collect(sequences)) return false;
  const Tensor hidden = engine_.step(pieces_);
  rows_.clear();
  asking_.clear();
  int32_t end = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Sequence& s = *stepping_[i];
    end += static_cast<int32_t>(pieces_[i].tokens.size());
    s.advance(pieces_[i].tokens);
    const bool more =
        s.phase_ == Phase::kPrompt && s.fed_ < static_cast<int64_t>(s.request_->prompt.size());
    if (more) continue;
    if (!s.asks_logits()) {
      s.phase_ = Phase::kDone;
      continue;
    }
    rows_.push_back(end - 1);
    asking_.push_back(&s);
  }
  if (!rows_.empty()) choose(engine_.logits(hidden, rows_));
  return true;
}

// Picks the pieces of the next step; false when nothing is left to do.
bool Stepper::collect(std::span<Sequence* const> sequences) {
  pieces_.clear();
  stepping_.clear();
  int64_t room = engine_.max_step_tokens();
  for (const bool decoding : {true, false}) {
    if (!decoding) room = std::min(room, engine_.block());
    for (Sequence* s : sequences) {
      if (s->done() || (s->phase_ != Phase::kPrompt) != decoding) continue;
      if (s->cancelled() && s->phase_ != Phase::kFlush) {
        s->end(FinishReason::kCancelled);
        if (s->done()) continue;
      }
      const auto tokens = s->next_tokens(engine_.block());
      if (static_cast<int64_t>(tokens.size()) > room) continue;
      room -= static_cast<int64_t>(tokens.size());
      pieces_.push_back({&s->conversation_->state, tokens});
      stepping_.push_back(s);
    }
  }
  return !pieces_.empty();
}

// Rows of sequences with an editor go through the host.
void Stepper::edit(const Tensor& logits) {
  for (size_t i = 0; i < asking_.size(); ++i) {
    Sequence& s = *asking_[i];
    LogitEditor* editor = s.request_->editor.get();
    if (editor == nullptr || s.phase_ == Phase::kFlush || s.request_->max_tokens == 0) continue;
    const Tensor row = logits.slice(0, static_cast<int64_t>(i), 1);
    host_logits_.resize(static_cast<size_t>(row.size()));
    engine_.backend().read(row, std::as_writable_bytes(std::span(host_logits_)));
    s.raw_logits_ = host_logits_;
    const auto known = std::span(host_logits_).first(static_cast<size_t>(engine_.vocab_limit()));
    try {
      editor->edit(known);
      if (std::all_of(known.begin(), known.end(), [](float v) { return v == kForbidden; })) {
        bad_input("logits: expected at least 1 token that may come next, got none");
      }
    } catch (const Error& e) {
      s.error_ = e;
      s.failed_ = true;
      s.phase_ = Phase::kDone;
      continue;
    }
    engine_.backend().write(row, std::as_bytes(std::span(host_logits_)));
  }
}

// All rows together; when one of them is not finite, row by row, to find out which.
void Stepper::sample(const Tensor& logits) {
  params_.clear();
  for (const Sequence* s : asking_) params_.push_back(s->sample_params());
  sampled_.resize(asking_.size());
  const auto sample_rows = [&](size_t first, size_t count) {
    engine_.backend().sample(
        {logits.slice(0, static_cast<int64_t>(first), static_cast<int64_t>(count)),
         engine_.vocab_limit(), std::span(params_).subspan(first, count),
         std::span(sampled_).subspan(first, count)});
  };
  try {
    sample_rows(0, asking_.size());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kInternal) throw;
    for (size_t i = 0; i < asking_.size(); ++i) {
      try {
        sample_rows(i, 1);
      } catch (const Error& row) {
        if (row.code() != ErrorCode::kInternal) throw;
        asking_[i]->failed_ = true;
        asking_[i]->phase_ = Phase::kDone;
      }
    }
  }
}

// Row i of `logits` belongs to asking_[i].
void Stepper::choose(const Tensor& logits) {
  edit(logits);
  sample(logits);
  for (size_t i = 0; i < asking_.size(); ++i) {
    Sequence& s = *asking_[i];
    if (s.failed_) continue;
    const Tensor row = logits.slice(0, static_cast<int64_t>(i), 1);
    if (s.phase_ == Phase::kFlush || s.request_->max_tokens == 0) {
      s.phase_ = Phase::kDone;
      s.raw_logits_.clear();
    } else {
      if (s.request_->want_logprobs) record_logprobs(s, row, sampled_[i]);
      s.accept(engine_, sampled_[i]);
    }
    if (s.done() && s.finishes_state()) {
      const auto raw = raw_logits(s, row);
      s.conversation_->logits.assign(raw.begin(), raw.end());
    }
  }
}

// The model's own logits of a row, whether an editor has changed it or not.
std::span<const float> Stepper::raw_logits(Sequence& s, const Tensor& row) {
  if (!s.raw_logits_.empty()) return s.raw_logits_;
  host_logits_.resize(static_cast<size_t>(row.size()));
  engine_.backend().read(row, std::as_writable_bytes(std::span(host_logits_)));
  return host_logits_;
}

void Stepper::record_logprobs(Sequence& s, const Tensor& row, int32_t token) {
  const auto known = raw_logits(s, row).first(static_cast<size_t>(engine_.vocab_limit()));
  s.result_.logprobs.push_back(token_logprobs(known, token, s.request_->top_logprobs));
}

}  // namespace adder
