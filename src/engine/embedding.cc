#include "engine/embedding.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/error.h"

namespace adder {

EmbeddingRun::EmbeddingRun(Engine& engine, std::vector<int32_t> tokens, Pooling pooling)
    : engine_(engine),
      tokens_(std::move(tokens)),
      pooling_(pooling),
      sum_(static_cast<size_t>(engine.config().d_model)) {
  ADDER_CHECK(!tokens_.empty(), "input: expected at least 1 token, got none");
  engine_.check_tokens(tokens_);
  state_ = engine_.states().acquire();
}

bool EmbeddingRun::advance() {
  if (done_ == tokens_.size()) return true;
  const size_t count = std::min(static_cast<size_t>(engine_.block()), tokens_.size() - done_);
  const Piece piece{&state_, std::span(tokens_).subspan(done_, count)};
  const Tensor hidden = engine_.step(std::span(&piece, 1));
  done_ += count;
  const bool ended = done_ == tokens_.size();
  if (pooling_ == Pooling::kLast && !ended) return false;

  // Of the last position alone, one row.
  const size_t first = pooling_ == Pooling::kLast ? count - 1 : 0, width = sum_.size();
  rows_.resize((count - first) * width);
  engine_.backend().read(
      hidden.slice(0, static_cast<int64_t>(first), static_cast<int64_t>(count - first)),
      std::as_writable_bytes(std::span(rows_)));
  for (size_t i = 0; i < rows_.size(); ++i) sum_[i % width] += static_cast<double>(rows_[i]);
  return ended;
}

std::vector<float> EmbeddingRun::result() const {
  ADDER_CHECK(done_ == tokens_.size(), "embedding: expected {} tokens to be processed, got {}",
              tokens_.size(), done_);
  double squares = 0;
  for (const double value : sum_) squares += value * value;
  if (!std::isfinite(squares)) engine_.explain_non_finite();
  // The mean is the sum by another length, which the division takes out.
  const double scale = squares > 0 ? 1.0 / std::sqrt(squares) : 0.0;
  std::vector<float> values(sum_.size());
  std::transform(sum_.begin(), sum_.end(), values.begin(),
                 [scale](double value) { return static_cast<float>(value * scale); });
  return values;
}

std::vector<float> embed(Engine& engine, std::vector<int32_t> tokens, Pooling pooling) {
  EmbeddingRun run(engine, std::move(tokens), pooling);
  while (!run.advance()) {
  }
  return run.result();
}

}  // namespace adder
