// A checkpoint on disk: its config and its tensors, mapped, not copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "io/json_lenient.h"

namespace adder {

// One tensor as stored. `data` points into a mapped file that the Checkpoint keeps alive; it may be
// unaligned for its dtype only if the file is (readers guarantee natural alignment or copy).
struct StoredTensor {
  std::string name;
  std::string file;  // file name it came from, for messages
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;  // in elements; contiguous row-major for safetensors
  const std::byte* data = nullptr;

  int64_t size() const;
  bool is_contiguous() const;
};

// Spelling of names and config keys, told by file names and tensor names first, config keys second.
enum class Dialect {
  kStateSpaces,  // config d_model / n_layer / ssm_cfg without model_type; backbone.embedding.weight
  kHuggingFace,  // model_type mamba, mamba2, falcon_mamba; backbone.embeddings.weight
  kOldPort,      // d_inner, d_state, dt_rank, bias, conv_bias
  kCodestral,    // params.json, consolidated.safetensors; model.backbone.
};

std::string_view dialect_name(Dialect dialect);

class Checkpoint {
 public:
  // path: a directory, or a .safetensors, .bin, .pt file whose config lies beside it.
  // Throws Error naming the file and what is wrong with it.
  static Checkpoint open(const std::string& path);
  // A safetensors image that outlives the checkpoint, e.g. one compiled into the program.
  static Checkpoint from_memory(std::span<const std::byte> safetensors, std::string_view config,
                                std::string name);

  const std::string& path() const { return path_; }            // as given
  const std::string& directory() const { return directory_; }  // empty for from_memory
  const JsonValue& config() const { return config_; }
  Dialect dialect() const { return dialect_; }
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null when absent

 private:
  Checkpoint() = default;

  std::string path_, directory_;
  JsonValue config_;
  Dialect dialect_ = Dialect::kStateSpaces;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::vector<std::shared_ptr<void>> mappings_;  // keeps the data alive
};

}  // namespace adder
