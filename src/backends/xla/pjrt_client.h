// A client of a plugin with its first device, and owners of what a plugin hands out.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backends/xla/executor.h"
#include "backends/xla/pjrt_error.h"
#include "backends/xla/pjrt_plugin.h"

namespace adder::xla {

// Gives the memory of arrays that are gone to new ones: each step makes as many as it frees. All
// its blocks have the size of the first.
class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() {
    while (free_ != nullptr) ::operator delete(std::exchange(free_, free_->next));
  }

  void* take(size_t bytes) {
    if (size_ == 0) size_ = std::max(bytes, sizeof(Free));
    if (bytes > size_ || free_ == nullptr) return ::operator new(std::max(bytes, size_));
    return std::exchange(free_, free_->next);
  }
  void give_back(void* block, size_t bytes) {
    if (bytes > size_) return ::operator delete(block);
    free_ = new (block) Free{free_};
  }

 private:
  struct Free {
    Free* next;
  };
  size_t size_ = 0;
  Free* free_ = nullptr;
};

template <typename T>
struct PoolAllocator {
  using value_type = T;

  explicit PoolAllocator(std::shared_ptr<BlockPool> blocks) : pool(std::move(blocks)) {}
  template <typename U>
  PoolAllocator(const PoolAllocator<U>& other) : pool(other.pool) {}  // NOLINT: converts

  T* allocate(size_t n) { return static_cast<T*>(pool->take(n * sizeof(T))); }
  void deallocate(T* block, size_t n) { pool->give_back(block, n * sizeof(T)); }
  bool operator==(const PoolAllocator&) const = default;

  std::shared_ptr<BlockPool> pool;
};

class PjrtClient {
 public:
  // Throws Error(kUnsupported) with what the plugin says.
  explicit PjrtClient(const Plugin& plugin);

  const Plugin& plugin() const { return plugin_; }
  const pjrt::Api& api() const { return *plugin_.api; }
  pjrt::Client* get() const { return client_.get(); }
  pjrt::Device* device() const { return device_; }
  const std::string& platform() const { return platform_; }  // "cpu", "cuda", "tpu"
  const std::string& platform_version() const { return platform_version_; }
  const std::string& device_kind() const { return device_kind_; }

  // For arrays, which may live longer than the client does.
  const std::shared_ptr<BlockPool>& pool() const { return pool_; }
  // Of the arrays that are on the device now.
  int64_t array_bytes() const { return array_bytes_; }
  void count_array(int64_t bytes) const { array_bytes_ += bytes; }

  // What the plugin says, or where it does not know, of the arrays.
  MemoryUse memory() const;
  // Throws Error(kIo) with the plugin's words where `error` is one.
  void check(pjrt::Error* error, std::string_view action) const {
    check_pjrt(api(), error, action);
  }
  // The same for what asks for so many bytes on the device: where it has no room, how much it has.
  void check_room(pjrt::Error* error, std::string_view action, size_t bytes) const;

 private:
  struct Destroy {
    const pjrt::Api* api;
    void operator()(pjrt::Client* client) const;
  };

  void find_device();

  const Plugin& plugin_;
  std::unique_ptr<pjrt::Client, Destroy> client_;
  pjrt::Device* device_ = nullptr;
  std::string platform_, platform_version_, device_kind_;
  mutable std::atomic<int64_t> array_bytes_ = 0;
  std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();
};

// Owns an object of a plugin's, and keeps its client alive.
template <typename T, typename Args, T* Args::*kField, pjrt::Call<Args> pjrt::Api::*kDestroy>
class PjrtOwner {
 public:
  PjrtOwner() = default;
  PjrtOwner(std::shared_ptr<const PjrtClient> client, T* object)
      : client_(std::move(client)), object_(object) {}
  PjrtOwner(PjrtOwner&& other) noexcept
      : client_(std::move(other.client_)), object_(std::exchange(other.object_, nullptr)) {}
  PjrtOwner& operator=(PjrtOwner&& other) noexcept {
    std::swap(client_, other.client_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~PjrtOwner() { reset(); }

  T* get() const { return object_; }
  void reset() {
    if (object_ == nullptr) return;
    auto args = pjrt::arguments<Args>();
    args.*kField = std::exchange(object_, nullptr);
    take_failure(client_->api(), (client_->api().*kDestroy)(&args));
  }

 private:
  std::shared_ptr<const PjrtClient> client_;
  T* object_ = nullptr;
};

using PjrtBuffer = PjrtOwner<pjrt::Buffer, pjrt::BufferDestroyArgs,
                             &pjrt::BufferDestroyArgs::buffer, &pjrt::Api::buffer_destroy>;
using PjrtExecutable =
    PjrtOwner<pjrt::Executable, pjrt::ExecutableDestroyArgs,
              &pjrt::ExecutableDestroyArgs::executable, &pjrt::Api::executable_destroy>;
using PjrtLoadedExecutable = PjrtOwner<pjrt::LoadedExecutable, pjrt::LoadedExecutableDestroyArgs,
                                       &pjrt::LoadedExecutableDestroyArgs::executable,
                                       &pjrt::Api::loaded_executable_destroy>;

}  // namespace adder::xla
