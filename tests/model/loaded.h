// A checkpoint in memory with what it takes to look at its weights.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/registry.h"
#include "model/weights.h"
#include "testing/checkpoint_writer.h"

namespace adder::testing {

struct Loaded {
  std::shared_ptr<const std::string> image;  // what the checkpoint lies in, when made here
  Checkpoint checkpoint;
  ModelConfig config;
  std::unique_ptr<Backend> backend = make_backend("ref");
  Weights weights;

  explicit Loaded(Checkpoint from, std::shared_ptr<const std::string> bytes = nullptr)
      : image(std::move(bytes)),
        checkpoint(std::move(from)),
        config(derive_config(checkpoint)),
        weights(Weights::load(checkpoint, config, *backend)) {}
  Loaded(const ModelShape& shape, const TestTensors& tensors)
      : Loaded(shape, std::make_shared<const std::string>(safetensors_image(tensors))) {}

  std::vector<float> values(const Tensor& t) const {
    std::vector<float> out(static_cast<size_t>(t.size()));
    backend->read(t, std::as_writable_bytes(std::span(out)));
    return out;
  }

 private:
  Loaded(const ModelShape& shape, std::shared_ptr<const std::string> bytes)
      : Loaded(
            Checkpoint::from_memory(as_bytes(*bytes), hugging_face_config(shape).dump(), "model"),
            bytes) {}
};

}  // namespace adder::testing
