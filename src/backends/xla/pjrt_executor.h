// The executor of make_pjrt_executor, with an entry for programs that are text already.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/xla/executable_cache.h"
#include "backends/xla/executor.h"
#include "backends/xla/pjrt_client.h"

namespace adder::xla {

// What a program takes and gives.
struct Signature {
  std::vector<Type> arguments, results;
  std::vector<int32_t> donated;  // as Program::donated
};

class PjrtExecutor final : public Executor {
 public:
  explicit PjrtExecutor(const Plugin& plugin,
                        ExecutableCache cache = ExecutableCache::of_environment());

  bool on_host() const override { return client_->platform() == "cpu"; }
  std::string description() const override;
  ArrayPtr upload_as(const TypePtr& type, std::span<const std::byte> bytes) override;
  void download(Array& array, std::span<std::byte> bytes) override;
  // XLA:CPU converts before it multiplies; TPUs and GPUs multiply 16-bit numbers.
  bool widens_weights() const override { return on_host(); }
  bool splits_row_products() const override { return on_host(); }
  std::unique_ptr<Executable> compile(const Program& program) override;
  // text: StableHLO, one public function `main`. Throws Error(kIo) where the plugin refuses it.
  std::unique_ptr<Executable> compile_text(std::string_view text, Signature signature);
  std::optional<MemoryUse> memory() const override { return client_->memory(); }
  int64_t compiled() const override { return compiled_; }
  int64_t from_cache() const override { return from_cache_; }
  int64_t on_disk() const override { return from_cache_ + stored_; }

 private:
  PjrtLoadedExecutable load_cached(std::string_view text);
  PjrtLoadedExecutable compile_anew(std::string_view text);
  void store(pjrt::LoadedExecutable* loaded, std::string_view text);
  size_t count_outputs(pjrt::LoadedExecutable* loaded) const;
  PjrtExecutable unloaded(pjrt::LoadedExecutable* loaded) const;

  std::shared_ptr<const PjrtClient> client_;
  ExecutableCache cache_;
  std::string compile_options_;
  std::string identity_;                 // what a compiled program depends on beside its text
  std::vector<int64_t> minor_to_major_;  // of the array that is being read
  int64_t compiled_ = 0, from_cache_ = 0, stored_ = 0;
};

}  // namespace adder::xla
