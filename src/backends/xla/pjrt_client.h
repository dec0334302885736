// A client of a plugin with its first device, and owners of what a plugin hands out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backends/xla/pjrt_error.h"
#include "backends/xla/pjrt_plugin.h"

namespace adder::xla {

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

  // Of the arrays that are on the device now.
  int64_t array_bytes() const { return array_bytes_; }
  void count_array(int64_t bytes) const { array_bytes_ += bytes; }

  // Throws Error(kIo) with the plugin's words where `error` is one.
  void check(pjrt::Error* error, std::string_view action) const {
    check_pjrt(api(), error, action);
  }

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
