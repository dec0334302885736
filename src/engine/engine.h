// A loaded model on a backend, and the packed step that everything above is built from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/registry.h"
#include "kernels/backend.h"
#include "model/language_model.h"
#include "text/tokenizer.h"

namespace adder {

inline constexpr int64_t kDefaultBlock = 256;

struct EngineOptions {
  std::string device = "cpu";
  int threads = 0;  // 0: one per CPU that this process may use
  bool pin = true;  // worker threads keep a CPU of their own when there is one for each
  // Megabytes of compiled programs that the device "xla" keeps on the disk (make_backend).
  std::optional<uint64_t> jit_cache_mb = {};
  // Prompts are fed in blocks of this many tokens, which bounds memory whatever the prompt's
  // length. Multiples of kSsdChunkAlign give the same bits for every block size.
  // 0: what `adder tune` found for this machine and shape (engine/tuning.h), else kDefaultBlock.
  int64_t block = kDefaultBlock;
  int32_t slots = 1;       // sequences that can be in flight together
  int64_t logit_rows = 1;  // rows of logits asked for at once; at least one per slot is kept
  // Puts something around the backend, such as a profiler. Empty: nothing.
  std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)> wrap_backend = {};
};

// One sequence's part of a step.
struct Piece {
  StateHandle* state;               // made unique before it is written
  std::span<const int32_t> tokens;  // at least 1, at most block
};

// What EngineOptions::device may be in this build, the preferred one first.
std::vector<std::string> available_devices();
// Throws Error(kBadInput) for what cannot be the name of a device, such as "gpu" or "cpu:1".
void check_device_name(std::string_view device);

class Engine {
 public:
  // model: as for open_model(). Finds the tokenizer beside it.
  // Throws Error naming the file and the field.
  static std::unique_ptr<Engine> load(const std::string& model, const EngineOptions& options);
  Engine(std::shared_ptr<const Checkpoint> checkpoint, std::unique_ptr<Tokenizer> tokenizer,
         const EngineOptions& options);

  const ModelConfig& config() const { return model_->config(); }
  const Checkpoint& checkpoint() const { return model_->checkpoint(); }
  const LanguageModel& model() const { return *model_; }
  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }
  std::optional<DeviceMemory> device_memory() const { return adder::device_memory(*backend_); }
  StatePool& states() { return *states_; }
  // As it was when it was made: states and scratch are new, the weights stay. No StateHandle may be
  // left.
  void renew();
  // Throws Error(kBadInput) when the model came without one.
  const Tokenizer& tokenizer() const;
  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  int64_t block() const { return block_; }
  // For measuring: smaller blocks than the engine was made for. Throws Error(kBadInput) for larger.
  void set_block(int64_t block);
  // Why the stored tuning could not be used; empty: nothing is wrong.
  const std::string& tuning_problem() const { return tuning_problem_; }
  int64_t max_step_tokens() const { return workspace_->max_tokens(); }
  int64_t max_logit_rows() const { return workspace_->max_logit_rows(); }

  // Ids from here on are padding of the vocabulary and are never produced.
  int64_t vocab_limit() const { return vocab_limit_; }
  bool is_eos(int32_t id) const;
  std::span<const int32_t> eos_ids() const { return eos_ids_; }
  // The model's identity, for state files; computed on first use.
  const std::string& fingerprint();

  // Ids that the model can take; throws Error(kBadInput) naming the first that it cannot.
  void check_tokens(std::span<const int32_t> tokens) const;

  // Advances all pieces by one packed step of at most max_step_tokens() tokens and returns the
  // hidden state of every token, (tokens, d_model), pieces in order. Valid until the next step.
  // Allocates nothing once the largest step has been seen.
  Tensor step(std::span<const Piece> pieces);
  // Logits (rows, vocab_rows) of rows of the last step's result. Valid until the next call.
  Tensor logits(const Tensor& hidden, std::span<const int32_t> rows);
  // The backend's decode loop over steps of this engine, for `rows` sequences; null when it
  // has none. The last one that was asked for is kept.
  DecodeLoop* decode_loop(int64_t rows);
  // What that loop repeats.
  DecodeStep decode_step();
  // Saved logits of one position, (vocab_rows) values, as the backend's (1, vocab_rows).
  Tensor import_logits(std::span<const float> saved);

  // Rethrows a failed operation; when the cause is a NaN or Inf weight, names the tensor.
  [[noreturn]] void explain_non_finite() const;

 private:
  void make_buffers(int32_t slots);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<StatePool> states_;
  std::unique_ptr<Workspace> workspace_;
  std::string fingerprint_;
  std::string tuning_problem_;
  int64_t block_, max_block_;
  int64_t logit_rows_;
  int64_t vocab_limit_ = 0;
  std::vector<int32_t> eos_ids_;
  std::vector<int32_t> step_tokens_, step_starts_, step_slots_;  // scratch of step()
  bool has_decode_loop_ = true;                                  // as far as is known
  std::unique_ptr<DecodeLoop> decode_loop_;
};

}  // namespace adder
