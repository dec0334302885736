// A model's folder that appears whole or not at all.
#pragma once

#include <string>

#include "io/checkpoint.h"
#include "model/config.h"

namespace adder {

// A folder beside the target, under a temporary name; commit() renames it. Without commit() it goes
// away with all that is in it. The target must be new or an empty folder. Errors throw Error(kIo),
// an existing target Error(kBadInput).
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& target);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  void commit();  // at most once

 private:
  std::string target_, path_;  // path_ is empty once there is no temporary folder
};

// A config.json in the dialect of Hugging Face for a model of any dialect. What that dialect lacks
// is under keys of Adder's own ("adder.vocab_size").
std::string hugging_face_config(const ModelConfig& config, const Checkpoint& source);

// Writes `config` to `folder` and copies what lies beside the source: tokenizer, chat template,
// generation settings. The tokenizer and the template of a GGUF file become files.
void write_companions(const Checkpoint& source, const std::string& config,
                      const std::string& folder);

}  // namespace adder
