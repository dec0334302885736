// Helpers of the engine tests: golden models, forced text, views into slots.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/generator.h"
#include "io/io_testing.h"
#include "testing/inputs.h"

namespace adder::testing {

inline std::string golden_path(const std::string& name) {
  return ADDER_SOURCE_DIR "/tests/golden/" + name;
}

inline nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(golden_path(name) + "/expected.json"));
}

// One of each mixer, and the variant of Mamba-1 that norms B, C and dt.
inline const std::vector<std::string>& golden_families() {
  static const std::vector<std::string> names = {"mamba1_hf", "falcon_mamba", "mamba2_hf_groups4"};
  return names;
}

inline std::unique_ptr<Engine> golden_engine(const std::string& name, EngineOptions options = {}) {
  if (options.threads == 0) options.threads = 2;
  return Engine::load(golden_path(name), options);
}

// The demo model: the one with a tokenizer, of bytes.
inline std::unique_ptr<Engine> demo_engine(EngineOptions options = {}) {
  if (options.threads == 0) options.threads = 2;
  return Engine::load("", options);
}

// Ids that every golden model has and that are not its end of text (0).
inline std::vector<int32_t> random_ids(uint64_t seed, int64_t count, int32_t vocab = 96) {
  Rng rng(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(1 + rng.below(vocab - 1));
  return ids;
}

inline std::vector<int32_t> ids_of(const nlohmann::json& value) {
  return value.get<std::vector<int32_t>>();
}

inline GenerationRequest greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  r.ignore_eos = true;
  return r;
}

inline std::vector<float> state_values(Engine& engine, const StateHandle& state) {
  std::vector<float> values(engine.states().snapshot_bytes() / sizeof(float));
  engine.states().snapshot(state, std::as_writable_bytes(std::span(values)));
  return values;
}

// Fills every free slot with NaN, as if the last sequence there had gone wrong.
inline void poison_free_slots(Engine& engine) {
  const std::vector<float> bad(engine.states().snapshot_bytes() / sizeof(float),
                               std::numeric_limits<float>::quiet_NaN());
  std::vector<StateHandle> taken;
  while (engine.states().free_slots() > 0) {
    taken.push_back(engine.states().acquire());
    engine.states().restore(taken.back(), std::as_bytes(std::span(bad)));
  }
}

// Ids that stand for whatever a test wants a known sequence of ids to spell.
class PieceTokenizer final : public Tokenizer {
 public:
  PieceTokenizer(int32_t size, std::vector<std::pair<int32_t, std::string>> pieces)
      : pieces_(static_cast<size_t>(size), "?") {
    for (auto& [id, piece] : pieces) pieces_[static_cast<size_t>(id)] = std::move(piece);
  }

  using Tokenizer::encode;
  std::vector<int32_t> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::string decode(std::span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id);
    return text;
  }
  std::string_view token_bytes(int32_t id) const override {
    return pieces_.at(static_cast<size_t>(id));
  }
  bool is_special(int32_t id) const override { return id == special; }
  bool strips_leading_space() const override { return strips; }
  int32_t size() const override { return static_cast<int32_t>(pieces_.size()); }
  std::optional<int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string_view kind() const override { return "pieces of a test"; }

  bool strips = false;
  int32_t special = -1;

 private:
  std::vector<std::string> pieces_;
};

}  // namespace adder::testing
