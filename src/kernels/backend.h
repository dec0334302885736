// The contract between the model and whatever computes.
//
// One pure virtual function per operation and no defaults: a backend that lacks one does not
// compile. (conv_ssd_norm is three of them, and make_decode_loop is none.) The model passes handles
// and never reads memory, so a backend may run an operation at once, queue it, or record it. Every
// operation validates its arguments (kernels/checks.h) and throws Error(kBadInput) with expected
// against got.
//
// All float activations are float32 and need unit stride on their last axis only. For every
// operation a row's result is independent, to the bit, of the other sequences in the batch, of the
// number of threads and of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/buffer.h"
#include "core/tensor.h"
#include "kernels/causal_conv1d.h"
#include "kernels/conv_ssd_norm.h"
#include "kernels/decode_loop.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/sample.h"
#include "kernels/selective_scan.h"
#include "kernels/ssd_scan.h"

namespace adder {

// kRows: single rows are looked up (embedding), and small tensors. kMatmul: products.
enum class WeightUse : uint8_t { kRows, kMatmul };

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;    // "ref", "cpu"
  virtual std::string description() const = 0;  // "cpu, AVX2, 2 threads"

  // Zero-filled memory that this backend's operations can use.
  virtual Buffer allocate(size_t bytes) = 0;
  // A weight in host memory, in the form that the operation needs: the only weights that `matmul`,
  // or `embedding`, takes. Either a handle to `host` itself, which must then outlive its use, or a
  // copy, perhaps in an order of the backend's own, that *owner keeps.
  virtual Tensor import_weight(const Tensor& host, WeightUse use, Buffer* owner) = 0;
  // Copies between host memory and a contiguous tensor of this backend, after all work before it.
  virtual void read(const Tensor& tensor, std::span<std::byte> host) = 0;
  virtual void write(const Tensor& tensor, std::span<const std::byte> host) = 0;
  // Waits until all operations so far are done. Results are right without it: this is for measuring
  // time, and a failure of queued work shows here at the latest.
  virtual void synchronize() = 0;

  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void gated_rms_norm(const GatedRmsNormArgs& args) = 0;
  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void causal_conv1d(const CausalConv1dArgs& args) = 0;
  virtual void selective_scan(const SelectiveScanArgs& args) = 0;
  virtual void ssd_scan(const SsdScanArgs& args) = 0;
  virtual void sample(const SampleArgs& args) = 0;

  // out[i, :] = x[rows[i], :] for f32 matrices.
  virtual void gather_rows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) = 0;
  // state is (slots, ...), contiguous within a slot.
  virtual void state_zero(const Tensor& state, int32_t slot) = 0;
  virtual void state_copy(const Tensor& state, int32_t from, int32_t to) = 0;

  // Three defaults, for what is a gain where work is queued and no loss to do without, also for
  // what is put around a backend to see every operation.
  //
  // A loop without the host. Null: there is none.
  virtual std::unique_ptr<DecodeLoop> make_decode_loop(int64_t /*rows*/, int64_t /*vocab_limit*/,
                                                       const DecodeStep& /*step*/) {
    return nullptr;
  }
  // The three operations in a row; a backend that overrides it takes fewer launches for the same
  // bits.
  virtual void conv_ssd_norm(const ConvSsdNormArgs& args) {
    causal_conv1d(args.conv);
    ssd_scan(args.scan);
    if (args.norm) gated_rms_norm(*args.norm);
  }
  // A matrix that was imported for kRows as one for kMatmul, of the same memory (tied embeddings).
  // Null: products need it in another form.
  virtual Tensor matmul_view(const Tensor& /*rows*/) { return {}; }
};

}  // namespace adder
