// The interpreter of the XLA backend, for tests that change what it does or count what it is asked.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backends/xla/executor.h"
#include "backends/xla/xla_backend.h"
#include "engine/engine.h"

namespace adder::testing {

class ForwardingExecutor : public xla::Executor {
 public:
  bool on_host() const override { return true; }
  std::string description() const override { return inner_->description(); }
  xla::ArrayPtr upload_as(const xla::TypePtr& type, std::span<const std::byte> bytes) override {
    return inner_->upload_as(type, bytes);
  }
  void download(xla::Array& array, std::span<std::byte> bytes) override {
    inner_->download(array, bytes);
  }
  std::unique_ptr<xla::Executable> compile(const xla::Program& program) override {
    return inner_->compile(program);
  }
  int64_t compiled() const override { return inner_->compiled(); }
  int64_t from_cache() const override { return inner_->from_cache(); }

 private:
  std::unique_ptr<xla::Executor> inner_ = xla::make_interpreter();
};

// Options of an engine whose backend runs on what `make` returns.
template <typename Make>
EngineOptions on_executor(Make make, int32_t slots, int64_t block) {
  EngineOptions options;
  options.device = "xla:interpreter";
  options.slots = slots;
  options.block = block;
  options.wrap_backend = [make](std::unique_ptr<Backend>) {
    return std::make_unique<xla::XlaBackend>(make());
  };
  return options;
}

}  // namespace adder::testing
