#include "engine/engine.h"

#include <algorithm>
#include <numeric>

#include "backends/registry.h"
#include "core/error.h"
#include "engine/model_source.h"
#include "engine/tuning.h"

namespace adder {

std::vector<std::string> available_devices() {
  return available_backends();
}

void check_device_name(std::string_view device) {
  parse_device(device);
}

std::unique_ptr<Engine> Engine::load(const std::string& model, const EngineOptions& options) {
  auto checkpoint = std::make_shared<Checkpoint>(open_model(model));
  auto tokenizer = find_tokenizer(*checkpoint);
  return std::make_unique<Engine>(std::move(checkpoint), std::move(tokenizer), options);
}

namespace {

std::unique_ptr<Backend> make_backend_for(const EngineOptions& options) {
  auto backend = make_backend(options.device, options.threads, options.pin, options.jit_cache_mb);
  return options.wrap_backend ? options.wrap_backend(std::move(backend)) : std::move(backend);
}

}  // namespace

Engine::Engine(std::shared_ptr<const Checkpoint> checkpoint, std::unique_ptr<Tokenizer> tokenizer,
               const EngineOptions& options)
    : backend_(make_backend_for(options)),
      tokenizer_(std::move(tokenizer)),
      model_(std::make_unique<LanguageModel>(std::move(checkpoint), *backend_)),
      block_(options.block),
      logit_rows_(std::max<int64_t>(options.logit_rows, options.slots)) {
  if (block_ == 0) {
    FoundTuning found = find_tuning(tuning_path(), tuning_key(config(), backend_->description()));
    block_ = found.tuning ? found.tuning->block : kDefaultBlock;
    tuning_problem_ = std::move(found.problem);
  }
  max_block_ = block_;
  ADDER_CHECK(block_ >= 1 && block_ <= 65536, "block: expected 1 to 65536 tokens, got {}", block_);
  ADDER_CHECK(options.slots >= 1, "slots: expected at least 1, got {}", options.slots);
  make_buffers(options.slots);
  const auto step_tokens = static_cast<size_t>(max_step_tokens());
  step_tokens_.reserve(step_tokens);
  step_starts_.reserve(static_cast<size_t>(options.slots) + 1);
  step_slots_.reserve(static_cast<size_t>(options.slots));

  vocab_limit_ = config().vocab_size;
  if (tokenizer_) {
    if (tokenizer_->size() > config().vocab_rows) {
      bad_input(
          "{}: the tokenizer has {} ids, but the embedding has {} rows: they do not belong "
          "together",
          model_->checkpoint().path(), tokenizer_->size(), config().vocab_rows);
    }
    vocab_limit_ = std::min<int64_t>(vocab_limit_, tokenizer_->size());
  }
  eos_ids_ = config().eos_ids;
  if (tokenizer_ && tokenizer_->eos_id() && eos_ids_.empty())
    eos_ids_.push_back(*tokenizer_->eos_id());
}

void Engine::make_buffers(int32_t slots) {
  states_ = std::make_unique<StatePool>(config(), *backend_, slots);
  // A whole block always fits beside one token of every other sequence.
  workspace_ =
      std::make_unique<Workspace>(config(), *backend_, max_block_ + slots - 1, logit_rows_);
}

void Engine::renew() {
  const int32_t slots = states_->slots();
  ADDER_CHECK(states_->free_slots() == slots, "engine: renew: expected no state in use, got {}",
              slots - states_->free_slots());
  decode_loop_.reset();
  workspace_.reset();
  states_.reset();
  make_buffers(slots);
}

void Engine::set_block(int64_t block) {
  ADDER_CHECK(block >= 1 && block <= max_block_, "block: expected 1 to {} tokens, got {}",
              max_block_, block);
  block_ = block;
}

const Tokenizer& Engine::tokenizer() const {
  if (!tokenizer_) {
    bad_input(
        "{}: expected a tokenizer.json or tokenizer.model beside the weights, or a GGUF file with "
        "a tokenizer, got none; give ids with --tokens",
        model_->checkpoint().path());
  }
  return *tokenizer_;
}

bool Engine::is_eos(int32_t id) const {
  return std::find(eos_ids_.begin(), eos_ids_.end(), id) != eos_ids_.end();
}

const std::string& Engine::fingerprint() {
  if (fingerprint_.empty()) fingerprint_ = adder::fingerprint(checkpoint(), config());
  return fingerprint_;
}

void Engine::check_tokens(std::span<const int32_t> tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config().vocab_rows) {
      bad_input("tokens: expected ids from 0 to {}, got {} at position {}", config().vocab_rows - 1,
                tokens[i], i);
    }
  }
}

Tensor Engine::step(std::span<const Piece> pieces) {
  step_tokens_.clear();
  step_starts_.assign(1, 0);
  step_slots_.clear();
  for (const Piece& piece : pieces) {
    ADDER_CHECK(!piece.tokens.empty(), "step: expected at least 1 token per piece, got 0");
    states_->make_unique(*piece.state);
    step_tokens_.insert(step_tokens_.end(), piece.tokens.begin(), piece.tokens.end());
    step_starts_.push_back(static_cast<int32_t>(step_tokens_.size()));
    step_slots_.push_back(piece.state->slot());
  }
  return model_->forward(step_tokens_, {step_starts_, step_slots_}, *states_, *workspace_);
}

Tensor Engine::logits(const Tensor& hidden, std::span<const int32_t> rows) {
  return model_->logits(hidden, rows, *workspace_);
}

DecodeStep Engine::decode_step() {
  return [this](std::span<const int32_t> tokens, const PackedBatch& batch) {
    const Tensor hidden = model_->forward(tokens, batch, *states_, *workspace_);
    std::vector<int32_t> all(tokens.size());
    std::iota(all.begin(), all.end(), 0);
    return model_->logits(hidden, all, *workspace_);
  };
}

DecodeLoop* Engine::decode_loop(int64_t rows) {
  if (!has_decode_loop_) return nullptr;
  if (decode_loop_ && decode_loop_->rows() == rows) return decode_loop_.get();
  ADDER_CHECK(rows >= 1 && rows <= states_->slots(), "decode_loop: expected 1 to {} rows, got {}",
              states_->slots(), rows);
  decode_loop_.reset();  // first, so that both need not fit
  decode_loop_ = backend_->make_decode_loop(rows, vocab_limit_, decode_step());
  has_decode_loop_ = decode_loop_ != nullptr;
  return decode_loop_.get();
}

Tensor Engine::import_logits(std::span<const float> saved) {
  const Tensor row = model_->logits_rows(1, *workspace_);
  ADDER_CHECK(static_cast<int64_t>(saved.size()) == row.size(),
              "logits: expected {} values, got {}", row.size(), saved.size());
  backend_->write(row, std::as_bytes(saved));
  return row;
}

void Engine::explain_non_finite() const {
  if (const StoredTensor* tensor = find_non_finite(checkpoint())) {
    bad_input("{}: tensor '{}': expected finite values, got NaN or Inf", tensor->file,
              tensor->name);
  }
  fail(ErrorCode::kInternal,
       "{}: the model's output is not finite although its weights are; the values overflow float32",
       checkpoint().path());
}

}  // namespace adder
