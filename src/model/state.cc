#include "model/state.h"

#include <algorithm>

#include "core/error.h"

namespace adder {

struct StateHandle::Slot {
  int32_t index;
  std::shared_ptr<std::vector<int32_t>> free;
  Slot(int32_t i, std::shared_ptr<std::vector<int32_t>> f) : index(i), free(std::move(f)) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() { free->push_back(index); }  // capacity was reserved for every slot
};

int32_t StateHandle::slot() const {
  return slot_ ? slot_->index : -1;
}

StatePool::StatePool(const ModelConfig& c, Backend& backend, int32_t slots)
    : backend_(backend), slots_(slots), free_(std::make_shared<std::vector<int32_t>>()) {
  ADDER_CHECK(slots > 0, "state pool: expected at least 1 slot, got {}", slots);
  const auto make = [&](std::initializer_list<int64_t> shape) {
    Tensor t(nullptr, DType::kF32, shape);
    owned_.push_back(backend.allocate(static_cast<size_t>(t.size()) * sizeof(float)));
    t.data = owned_.back().data();
    return t;
  };
  for (int64_t i = 0; i < c.n_layer; ++i) {
    conv_.push_back(make({slots, c.d_conv - 1, c.conv_channels()}));
    ssm_.push_back(c.mixer == MixerKind::kMamba1 ? make({slots, c.d_state, c.d_inner})
                                                 : make({slots, c.n_heads, c.headdim, c.d_state}));
  }
  free_->reserve(static_cast<size_t>(slots));
  for (int32_t slot = slots; slot-- > 0;) free_->push_back(slot);
}

StatePool::~StatePool() = default;

int32_t StatePool::free_slots() const {
  return static_cast<int32_t>(free_->size());
}

int32_t StatePool::take_slot() {
  ADDER_CHECK(!free_->empty(), "state pool: all {} slots are taken", slots_);
  const int32_t slot = free_->back();
  free_->pop_back();
  return slot;
}

StateHandle StatePool::acquire() {
  const int32_t slot = take_slot();
  StateHandle handle(std::make_shared<StateHandle::Slot>(slot, free_));
  for (const Tensor& t : conv_) backend_.state_zero(t, slot);
  for (const Tensor& t : ssm_) backend_.state_zero(t, slot);
  return handle;
}

void StatePool::make_unique(StateHandle& handle) {
  ADDER_CHECK(static_cast<bool>(handle),
              "state pool: expected a handle with a slot, got an empty one");
  if (handle.slot_.use_count() == 1) return;
  const int32_t slot = take_slot();
  StateHandle own(std::make_shared<StateHandle::Slot>(slot, free_));
  for (const Tensor& t : conv_) backend_.state_copy(t, handle.slot(), slot);
  for (const Tensor& t : ssm_) backend_.state_copy(t, handle.slot(), slot);
  handle = std::move(own);
}

namespace {

size_t slot_bytes(const Tensor& state) {
  return static_cast<size_t>(state.size() / state.dim(0)) * sizeof(float);
}

}  // namespace

size_t StatePool::snapshot_bytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < conv_.size(); ++i) bytes += slot_bytes(conv_[i]) + slot_bytes(ssm_[i]);
  return bytes;
}

void StatePool::snapshot(const StateHandle& handle, std::span<std::byte> out) {
  ADDER_CHECK(handle && out.size() == snapshot_bytes(),
              "snapshot: expected a handle and {} bytes, got {} bytes", snapshot_bytes(),
              out.size());
  for (size_t i = 0; i < conv_.size(); ++i) {
    for (const Tensor* t : {&conv_[i], &ssm_[i]}) {
      backend_.read(t->select(handle.slot()), out.first(slot_bytes(*t)));
      out = out.subspan(slot_bytes(*t));
    }
  }
}

void StatePool::restore(StateHandle& handle, std::span<const std::byte> bytes) {
  ADDER_CHECK(bytes.size() == snapshot_bytes(), "restore: expected {} bytes, got {}",
              snapshot_bytes(), bytes.size());
  make_unique(handle);
  for (size_t i = 0; i < conv_.size(); ++i) {
    for (const Tensor* t : {&conv_[i], &ssm_[i]}) {
      backend_.write(t->select(handle.slot()), bytes.first(slot_bytes(*t)));
      bytes = bytes.subspan(slot_bytes(*t));
    }
  }
}

}  // namespace adder
