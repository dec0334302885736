// The backend that records: operations are collected into programs of StableHLO, compiled once for
// each shape and run by a PJRT plugin, or by the interpreter.
//
// Nothing runs until the host needs a value: Backend::read, sample, synchronize, and the writes to
// parts of a state. Quantized weights become float32 when they are imported, so products do not
// round their activations.
#pragma once

#include "backends/xla/recorder.h"
#include "kernels/backend.h"

namespace adder::xla {

class XlaBackend final : public Backend {
 public:
  explicit XlaBackend(std::unique_ptr<Executor> executor);

  std::string_view name() const override { return "xla"; }
  std::string description() const override { return recorder_.executor().description(); }

  Buffer allocate(size_t bytes) override;
  Tensor import_weight(const Tensor& host, WeightUse use, Buffer* owner) override;
  void read(const Tensor& tensor, std::span<std::byte> host) override;
  void write(const Tensor& tensor, std::span<const std::byte> host) override;
  void synchronize() override;

  void embedding(const EmbeddingArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void gated_rms_norm(const GatedRmsNormArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void causal_conv1d(const CausalConv1dArgs& args) override;
  void selective_scan(const SelectiveScanArgs& args) override;
  void ssd_scan(const SsdScanArgs& args) override;
  void sample(const SampleArgs& args) override;

  void gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) override;
  void state_zero(const Tensor& state, int32_t slot) override;
  void state_copy(const Tensor& state, int32_t from, int32_t to) override;
  std::unique_ptr<DecodeLoop> make_decode_loop(int64_t rows, int64_t vocab_limit,
                                               const DecodeStep& step) override;

  Recorder& recorder() { return recorder_; }
  const Executor& executor() const { return recorder_.executor(); }

  // How many rows an operation on so many has: in a loop, which is compiled for its rows, the same.
  int64_t padded(int64_t rows) const { return loop_.tokens != nullptr ? rows : bucket(rows); }

  // What stands for the loop's own values while its step is recorded.
  struct LoopValues {
    const int32_t *tokens = nullptr, *slots = nullptr;  // by address
    Ref token_ref = kNoRef, slot_ref = kNoRef;
  };
  void set_loop_values(const LoopValues& values) { loop_ = values; }

 private:
  // The options of a sample() as arrays; kept, as there is one for each token.
  struct SampleNumbers {
    bool draws = false, penalises = false;
    std::vector<float> temperature, min_p, penalty;
    std::vector<int32_t> top_k, ids;
    std::vector<uint64_t> top_p, uniform;
    std::vector<int8_t> penalised;

    void set(const SampleArgs& args, size_t rows);
  };

  template <typename F>
  void record(F&& f);
  Ref optional(const Tensor& tensor);
  Ref optional_rows(const Tensor& tensor, int64_t rows);
  Ref slots_of(const PackedBatch& batch, int64_t rows);
  Ref valid_of(const PackedBatch& batch);

  Recorder recorder_;
  LoopValues loop_;
  std::vector<int32_t> slots_;
  std::vector<int64_t> attributes_;  // of the operation that is being recorded
  SampleNumbers sample_;
};

// which: "interpreter", the name or the path of a plugin, or empty (make_pjrt_executor).
// jit_cache_mb: megabytes of compiled programs on the disk (executable_cache.h).
std::unique_ptr<Backend> make_backend(std::string_view which,
                                      std::optional<uint64_t> jit_cache_mb = {});
// Whether that computes on the processor of this machine. Throws as make_backend().
bool computes_on_host(std::string_view which);

}  // namespace adder::xla
