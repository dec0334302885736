// The one owner of recurrent state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/tensor.h"
#include "kernels/backend.h"
#include "model/config.h"

namespace adder {

class StatePool;

// A sequence's share of a slot. Copies share the slot; StatePool::make_unique separates them
// before one of them is written (copy on write). The slot returns to the pool with the last share.
// The pool must outlive its handles.
class StateHandle {
 public:
  StateHandle() = default;
  explicit operator bool() const { return slot_ != nullptr; }
  int32_t slot() const;
  int64_t handles() const { return slot_.use_count(); }  // that share the slot, this one included

 private:
  friend class StatePool;
  struct Slot;
  explicit StateHandle(std::shared_ptr<Slot> slot) : slot_(std::move(slot)) {}
  std::shared_ptr<Slot> slot_;
};

// A fixed number of slots; each holds the conv and SSM state of all layers of one sequence.
// Not thread-safe: one engine drives it.
class StatePool {
 public:
  StatePool(const ModelConfig& config, Backend& backend, int32_t slots);
  ~StatePool();
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  int32_t slots() const { return slots_; }
  int32_t free_slots() const;

  // A zeroed slot. Throws Error(kBadInput) when all are taken.
  StateHandle acquire();
  // Gives the handle a slot of its own, copied if it was shared.
  void make_unique(StateHandle& handle);

  // All layers' state of one sequence as host bytes: conv and SSM together or not at all.
  size_t snapshot_bytes() const;
  void snapshot(const StateHandle& handle, std::span<std::byte> out);
  // Overwrites the handle's slot (made unique first).
  void restore(StateHandle& handle, std::span<const std::byte> bytes);

  const Tensor& conv_state(int64_t layer) const { return conv_[static_cast<size_t>(layer)]; }
  const Tensor& ssm_state(int64_t layer) const { return ssm_[static_cast<size_t>(layer)]; }

 private:
  friend class StateHandle;
  int32_t take_slot();

  Backend& backend_;
  int32_t slots_;
  std::vector<Buffer> owned_;
  std::vector<Tensor> conv_;  // per layer (slots, d_conv - 1, conv_channels) f32
  std::vector<Tensor> ssm_;   // per layer (slots, d_state, d_inner) or (slots, H, P, N) f32
  std::shared_ptr<std::vector<int32_t>> free_;  // shared with the handles, which return slots
};

}  // namespace adder
