// What the bindings of a model share.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar_editor.h"
#include "engine/logit_editor.h"
#include "engine/shared_engine.h"
#include "poll.h"

namespace adder::python {

struct LoadOptions {
  std::string device;
  int threads = 0;
  bool pin = true;
  int64_t block = 0;
  int32_t slots = 0;  // 0: as many as fit, at most 8
};

// Methods but load() are called without the GIL, from any thread.
class Model {
 public:
  Model(const std::string& path, const LoadOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // In a child of the process that loaded it: the engine is a copy of memory whose threads are not
  // there and whose locks may be held for ever. It is neither used nor destroyed.
  bool forked() const;
  // Throws Error(kBusy) in a child process that was forked: its engine has lost its threads.
  const std::shared_ptr<SharedEngine>& shared() const;
  const Engine& engine() const { return shared_->engine(); }
  const Tokenizer& tokenizer() const;
  GrammarCache& grammars();
  std::string fingerprint();

 private:
  std::shared_ptr<SharedEngine> shared_;
  std::optional<GrammarCache> grammars_;
  std::string fingerprint_;
  pid_t process_;
};

// A conversation that is parked on the host. A value: nothing changes it.
struct State {
  std::shared_ptr<Model> model;
  ConversationHistory history;
};

// What a request asks for besides what the engine's own request says.
struct Request {
  GenerationRequest generation;
  TokenPenalties penalties;
  std::string grammar;      // GBNF; empty: none
  std::string json_schema;  // empty: none
  bool keep_state = false;
};

// A request on its way.
struct Running {
  ~Running() {
    if (model && model->forked()) static_cast<void>(sequence.release());
  }

  std::shared_ptr<Model> model;
  std::unique_ptr<SharedSequence> sequence;
  std::mutex reading = {};  // by the thread that advances it
};

}  // namespace adder::python
