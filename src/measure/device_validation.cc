#include "measure/device_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "engine/generator.h"
#include "engine/scoring.h"
#include "measure/forwarding_backend.h"

namespace adder {
namespace {

// Keeps the residual stream as each layer leaves it: what the norm of the next one has added up.
class LayerTap final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  std::vector<std::vector<float>>* kept = nullptr;  // per layer (tokens, d_model); null: not now

  void rms_norm(const RmsNormArgs& args) override {
    inner_->rms_norm(args);
    if (kept == nullptr || !args.residual) return;
    if (layer_ == kept->size()) kept->emplace_back();
    std::vector<float>& values = (*kept)[layer_++];
    const size_t before = values.size();
    values.resize(before + static_cast<size_t>(args.residual.size()));
    inner_->read(args.residual, std::as_writable_bytes(std::span(values).subspan(before)));
  }
  void embedding(const EmbeddingArgs& args) override {
    layer_ = 0;  // of a new step
    inner_->embedding(args);
  }

 private:
  size_t layer_ = 0;
};

// What one device makes of the tokens.
struct Outcome {
  std::vector<float> logits;  // (tokens, vocab_rows)
  std::vector<std::vector<float>> layers;
  std::vector<int32_t> greedy;
  std::vector<float> split, cached;  // (vocab_rows)
};

// Logits of the last token when the prompt is fed in pieces of these lengths.
std::vector<float> last_of_pieces(Engine& engine, std::span<const int32_t> tokens,
                                  std::span<const int64_t> lengths) {
  StateHandle state = engine.states().acquire();
  std::vector<float> logits(static_cast<size_t>(engine.config().vocab_rows));
  for (const int64_t length : lengths) {
    for (int64_t left = length; left > 0;) {
      const auto take = static_cast<size_t>(std::min(left, engine.block()));
      const Piece piece{&state, tokens.first(take)};
      const Tensor hidden = engine.step({&piece, 1});
      tokens = tokens.subspan(take);
      left -= static_cast<int64_t>(take);
      if (!tokens.empty()) continue;
      const auto last = static_cast<int32_t>(take - 1);
      engine.backend().read(engine.logits(hidden, {&last, 1}),
                            std::as_writable_bytes(std::span(logits)));
    }
  }
  return logits;
}

Outcome run(Engine& engine, LayerTap& tap, const ValidationOptions& o,
            const std::function<void(const char*)>& say) {
  Outcome out;
  const auto n = static_cast<int64_t>(o.tokens.size());
  say("logits");
  tap.kept = &out.layers;
  out.logits = last_logits(engine, o.tokens, n);
  tap.kept = nullptr;
  say("prompt in pieces");
  // Not at a chunk's end, and not in the middle.
  const int64_t first = std::max<int64_t>(1, n / 3);
  const int64_t pieces[] = {first, n - first};
  out.split = last_of_pieces(engine, o.tokens, pieces);
  out.cached = last_of_pieces(engine, o.tokens, std::vector<int64_t>(o.tokens.size(), 1));
  say("greedy tokens");
  GenerationRequest request;
  request.prompt = o.tokens;
  request.max_tokens = o.greedy_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  out.greedy = generate(engine, request).tokens;
  return out;
}

}  // namespace

Difference difference(std::span<const float> got, std::span<const float> want) {
  ADDER_CHECK(got.size() == want.size(), "difference: expected {} values, got {}", want.size(),
              got.size());
  double error = 0, norm = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - want[i]);
    error += d * d;
    norm += static_cast<double>(want[i]) * want[i];
    largest = std::max(largest, d);
  }
  if (!std::isfinite(error) || !std::isfinite(norm)) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    return {kInfinite, kInfinite};
  }
  return {error == 0 ? 0 : std::sqrt(error) / std::sqrt(norm), largest};
}

std::vector<DeviceValidation> validate_devices(const std::shared_ptr<const Checkpoint>& checkpoint,
                                               const ValidationOptions& o) {
  ADDER_CHECK(!o.devices.empty(), "validate: expected at least one device, got none");
  ADDER_CHECK(o.tokens.size() >= 2, "validate: expected at least 2 tokens, got {}",
              o.tokens.size());
  ADDER_CHECK(o.greedy_tokens >= 0, "validate: expected 0 or more greedy tokens, got {}",
              o.greedy_tokens);
  for (const std::string& device : o.devices) check_device_name(device);
  std::vector<DeviceValidation> results;
  Outcome want;
  for (const std::string& device : o.devices) {
    const auto say = [&](const char* what) {
      if (o.progress) o.progress(fmt::format("{}: {}", device, what));
    };
    say("loading");
    EngineOptions options;
    options.device = device;
    options.threads = o.threads;
    options.pin = o.pin;
    options.block = o.block;
    options.slots = 2;
    options.logit_rows = 16;
    LayerTap* tap = nullptr;
    options.wrap_backend = [&tap](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
      auto outer = std::make_unique<LayerTap>(std::move(inner));
      tap = outer.get();
      return outer;
    };
    Engine engine(checkpoint, nullptr, options);
    engine.check_tokens(o.tokens);
    Outcome got = run(engine, *tap, o, say);

    DeviceValidation r;
    r.device = device;
    r.description = engine.backend().description();
    const auto vocab = static_cast<size_t>(engine.config().vocab_rows);
    const auto last = std::span<const float>(got.logits).last(vocab);
    r.split = difference(got.split, last);
    r.cached = difference(got.cached, last);
    if (results.empty()) want = got;
    r.logits = difference(got.logits, want.logits);
    for (size_t i = 0; i < got.layers.size(); ++i)
      r.layers.push_back(difference(got.layers[i], want.layers[i]).relative);
    const auto other =
        std::mismatch(got.greedy.begin(), got.greedy.end(), want.greedy.begin(), want.greedy.end());
    if (other.first != got.greedy.end() || other.second != want.greedy.end())
      r.first_other_token = other.first - got.greedy.begin();
    r.passed = r.logits.within(o.bounds) && r.split.within(o.bounds) && r.cached.within(o.bounds) &&
               !r.first_other_token &&
               std::all_of(r.layers.begin(), r.layers.end(),
                           [&](double layer) { return layer <= o.bounds.relative; });
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace adder
