#include <utility>

#include "core/error.h"
#include "engine/shared_body.h"

namespace adder {

SharedSequence::SharedSequence(std::shared_ptr<SharedEngine> engine, SharedRequest request)
    : engine_(std::move(engine)), body_(std::make_unique<Body>()) {
  body_->request = std::move(request);
  GenerationRequest& generation = body_->request.generation;
  check_options(engine_->engine(), generation);
  const auto& from = body_->request.from.state();
  ADDER_CHECK(!generation.prompt.empty() || (from && !from->logits.empty()),
              "prompt: expected at least 1 token, got none");
  generation.conversation = &body_->conversation;
  generation.finish_state = body_->request.keep_state;
  generation.cancel = &body_->cancelled;
  generation.on_text = [body = body_.get()](std::string_view text) { body->text += text; };
  generation.on_prefill = nullptr;
}

SharedSequence::~SharedSequence() {
  const std::scoped_lock lock(engine_->list_mutex_);
  engine_->gone_.push_back(std::move(body_));
}

void SharedSequence::cancel() {
  body_->cancelled.store(true);
}

bool SharedSequence::done() const {
  return body_->done.load();
}

bool SharedSequence::failed() const {
  return body_->error.has_value() || body_->not_finite;
}

std::string SharedSequence::take_text() {
  return std::exchange(body_->text, {});
}

const GenerationResult& SharedSequence::result() const {
  ADDER_CHECK(body_->done, "sequence: expected it to be done");
  if (body_->error) throw Error(*body_->error);
  if (body_->not_finite) engine_->engine().explain_non_finite();
  return body_->result;
}

const ConversationHistory& SharedSequence::history() const {
  result();
  ADDER_CHECK(body_->request.keep_state, "state: it was not asked for with the request");
  return body_->history;
}

}  // namespace adder
