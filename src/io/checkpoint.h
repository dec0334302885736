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
#include "io/tensor_file.h"

namespace adder {

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
  using Tensors = std::map<std::string, StoredTensor, std::less<>>;

  // path: a directory, a .safetensors, .bin or .pt file whose config lies beside it, or the
  // *.index.json of a sharded checkpoint. What a file is, its first bytes tell, not its name.
  // Throws Error naming the file and what is wrong with it: kBadInput, kIo, or kUnsupported for
  // GGUF and for torch files of before PyTorch 1.6.
  static Checkpoint open(const std::string& path);
  // A safetensors image that outlives the checkpoint, e.g. one compiled into the program.
  static Checkpoint from_memory(std::span<const std::byte> safetensors, std::string_view config,
                                std::string name);
  // Tensors made by the program itself; file.owners keep their data alive.
  static Checkpoint from_tensors(TensorFile file, std::string_view config, std::string name);

  const std::string& path() const { return path_; }            // as given
  const std::string& directory() const { return directory_; }  // empty when there is no file
  const JsonValue& config() const { return config_; }
  Dialect dialect() const { return dialect_; }
  const Tensors& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null when absent
  // Says that a tensor's bytes will hardly be read again: its pages may leave memory. Harmless when
  // they are.
  void release(const StoredTensor& tensor) const;
  // Bytes of all tensors; data that tied tensors share counts once.
  uint64_t total_bytes() const;

 private:
  Checkpoint() = default;
  void add(TensorFile file);

  std::string path_, directory_;
  JsonValue config_;
  Dialect dialect_ = Dialect::kStateSpaces;
  Tensors tensors_;
  std::vector<std::shared_ptr<const MappedFile>> mappings_;  // these two keep the data alive
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace adder
