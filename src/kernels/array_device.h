// A device that computes on arrays of others in its memory: what the drop-in operations (src/ops)
// need of it beside the scans of Backend.
//
// A call is what lies between begin() and end(); its work is queued in order. Whoever calls has
// checked the operands: shapes fit, what is written shares no memory, elements are aligned to their
// size, and nothing that an index says lies outside. All arithmetic is float32, whatever the dtypes
// (float32, float16, bfloat16, float64); no array is complex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/array_view.h"
#include "core/buffer.h"
#include "kernels/selective_scan.h"
#include "kernels/ssd_scan.h"

namespace adder {

// One step of either Mamba, any strides; the formulas of ops/selective_state_update.h.
struct StateUpdateArrays {
  ArrayView state;          // (slots, nheads, headdim, dstate), in and out
  ArrayView x, dt, z, out;  // (batch, nheads, headdim); z optional
  ArrayView A;              // (nheads, headdim, dstate)
  ArrayView B, C;           // (batch, ngroups, dstate)
  ArrayView D, dt_bias;     // (nheads, headdim); optional
  bool dt_softplus = false;
  std::span<const int32_t> slots;  // (batch) in host memory, -1: out is 0; empty: row b has slot b
};

// ops/causal_conv1d.h, causal_conv1d_fn.
struct ConvArrays {
  ArrayView x, out;                        // (batch, dim, seqlen)
  ArrayView weight;                        // (dim, width)
  ArrayView bias;                          // (dim); optional
  ArrayView initial_states, final_states;  // (batch, dim, width - 1); optional
  bool silu = false;
  // In host memory. Both empty: a row is one sequence.
  // begin (batch, seqlen): where the sequence of a step begins; -1: padding.
  // rows (batch, 3): where the first sequence begins, where the last one begins and ends; 0, 0, 0
  // in a row of padding.
  std::span<const int32_t> begin, rows;
};

// ops/causal_conv1d.h, causal_conv1d_update.
struct ConvUpdateArrays {
  ArrayView x, out;      // (batch, dim, seqlen)
  ArrayView conv_state;  // (slots, dim, state_len), in and out
  ArrayView weight;      // (dim, width)
  ArrayView bias;        // (dim); optional
  bool silu = false;
  std::span<const int32_t> slots;      // as above
  std::span<const int64_t> positions;  // (batch) in host memory, from 0 and below state_len, of x
                                       // in a circular state; empty: it moves on instead
};

// All along the last axis, of size dim:
//   v            = x * rowscale + x1 + residual
//   residual_out = v
//   u            = v * silu(z) without norm_before_gate, else v
//   norm         = (u - mean_group(u)) / sqrt(var_group(u) + eps)
//                  with rms: u / sqrt(mean_group(u^2) + eps)
//   out          = norm * weight + bias, with z and norm_before_gate times silu(z)
//   out1         = the same with weight1, bias1
// A group is group_size neighbouring elements.
struct NormArrays {
  ArrayView x;         // (..., dim) float32, float16, bfloat16 or float64, as all
  ArrayView weight;    // (dim)
  ArrayView bias;      // (dim); optional: 0
  ArrayView residual;  // as x; optional: 0
  ArrayView x1;        // as x; optional: 0
  ArrayView rowscale;  // (...): the shape of x without its last axis; optional: 1
  ArrayView weight1;   // (dim); optional, together with out1
  ArrayView bias1;     // (dim); optional: 0
  ArrayView z;         // as x; optional: no gate
  float eps = 1e-6f;
  int64_t group_size = 0;  // divides dim; 0: dim
  bool norm_before_gate = true;
  bool rms = false;
  ArrayView out;           // as x; overlaps no operand, as the other two
  ArrayView out1;          // as x; optional
  ArrayView residual_out;  // as x; optional
};

class ArrayDevice {
 public:
  virtual ~ArrayDevice() = default;

  // What DLPack's __dlpack__(stream=) is given for work on the device's own stream.
  virtual int64_t own_stream() = 0;
  // One call at a time, from any thread. stream: a handle of the caller's, in order with which work
  // is queued; none: the device's own. Error(kBadInput) for a stream that is being captured.
  virtual void begin(std::optional<uint64_t> stream) = 0;
  // wait: until the work is done. Ends the call also where it throws.
  virtual void end(bool wait) = 0;

  // Undefined contents; valid until end(), and after it for what has been queued.
  virtual std::byte* temporary(size_t bytes) = 0;
  // For results: stays as long as its owner, outside of calls too. Undefined contents.
  virtual Buffer allocate(size_t bytes) = 0;
  // Copies wait for the work before them.
  virtual void download(void* to, const std::byte* from, size_t bytes) = 0;
  virtual void upload(std::byte* to, const void* from, size_t bytes) = 0;
  virtual void zero(std::byte* to, size_t bytes) = 0;

  // to = from * scale, rounded to nearest even in the dtype of `to`. Equal shapes, any dtypes that
  // a view has; exact between equal ones with a scale of 1.
  virtual void copy(const ArrayView& from, const ArrayView& to, float scale = 1.0f) = 0;
  virtual void state_update(const StateUpdateArrays& arrays) = 0;
  virtual void conv(const ConvArrays& arrays) = 0;
  virtual void conv_update(const ConvUpdateArrays& arrays) = 0;
  virtual void norm(const NormArrays& arrays) = 0;
  // Backend's, whose contracts hold.
  virtual void selective_scan(const SelectiveScanArgs& args) = 0;
  virtual void ssd_scan(const SsdScanArgs& args) = 0;
};

}  // namespace adder
