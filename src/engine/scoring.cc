#include "engine/scoring.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "engine/logprobs.h"

namespace adder {
namespace {

// Feeds `tokens` block by block and calls visit(position, logits of that position) for the
// positions from `first` on, a few rows of logits at a time.
void for_each_logits(Engine& engine, std::span<const int32_t> tokens, int64_t first,
                     const std::function<void(int64_t)>& on_progress,
                     const std::function<void(int64_t, std::span<const float>)>& visit) {
  engine.check_tokens(tokens);
  StateHandle state = engine.states().acquire();
  const auto vocab = static_cast<size_t>(engine.config().vocab_rows);
  std::vector<int32_t> rows;
  std::vector<float> host;
  const auto total = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < total; begin += engine.block()) {
    const int64_t n = std::min(engine.block(), total - begin);
    const Piece piece{&state, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(n))};
    const Tensor hidden = engine.step(std::span(&piece, 1));
    for (int64_t at = std::max(begin, first); at < begin + n; at += engine.max_logit_rows()) {
      rows.resize(static_cast<size_t>(std::min(engine.max_logit_rows(), begin + n - at)));
      std::iota(rows.begin(), rows.end(), static_cast<int32_t>(at - begin));
      const Tensor logits = engine.logits(hidden, rows);
      host.resize(rows.size() * vocab);
      engine.backend().read(logits, std::as_writable_bytes(std::span(host)));
      for (size_t i = 0; i < rows.size(); ++i) {
        visit(at + static_cast<int64_t>(i), std::span(host).subspan(i * vocab, vocab));
      }
    }
    if (on_progress) on_progress(begin + n);
  }
}

}  // namespace

std::vector<float> last_logits(Engine& engine, std::span<const int32_t> tokens, int64_t last,
                               const std::function<void(int64_t)>& on_progress) {
  const auto total = static_cast<int64_t>(tokens.size());
  ADDER_CHECK(last >= 1 && last <= total, "last: expected 1 to {} positions, got {}", total, last);
  std::vector<float> out;
  out.reserve(static_cast<size_t>(last * engine.config().vocab_rows));
  for_each_logits(engine, tokens, total - last, on_progress,
                  [&](int64_t, std::span<const float> logits) {
                    for (float v : logits) {
                      if (!std::isfinite(v)) engine.explain_non_finite();
                    }
                    out.insert(out.end(), logits.begin(), logits.end());
                  });
  return out;
}

std::optional<int32_t> text_start(const Engine& engine) {
  const ModelConfig& config = engine.config();
  if (config.bos_id) return config.bos_id;
  if (!config.eos_ids.empty()) return config.eos_ids.front();
  return engine.has_tokenizer() ? engine.tokenizer().eos_id() : std::nullopt;
}

void check_predicted(const Engine& engine, std::span<const int32_t> tokens) {
  engine.check_tokens(tokens);
  for (size_t i = 1; i < tokens.size(); ++i) {
    ADDER_CHECK(tokens[i] < engine.vocab_limit(),
                "tokens: expected ids from 0 to {} (the rest is padding), got {} at position {}",
                engine.vocab_limit() - 1, tokens[i], i);
  }
}

double token_nll(const Engine& engine, std::span<const float> logits, int32_t next, int32_t* best) {
  const auto known = logits.first(static_cast<size_t>(engine.vocab_limit()));
  const double norm = log_sum_exp(known);
  if (!std::isfinite(norm)) engine.explain_non_finite();
  if (best != nullptr)
    *best = static_cast<int32_t>(std::max_element(known.begin(), known.end()) - known.begin());
  return norm - static_cast<double>(known[static_cast<size_t>(next)]);
}

std::vector<double> next_token_nll(Engine& engine, std::span<const int32_t> tokens,
                                   const std::function<void(int64_t)>& on_progress,
                                   std::vector<int32_t>* best) {
  std::vector<double> nll;
  if (best != nullptr) best->clear();
  check_predicted(engine, tokens);
  if (tokens.size() < 2) return nll;
  nll.reserve(tokens.size() - 1);
  // The last token is only predicted, never fed.
  for_each_logits(engine, tokens.first(tokens.size() - 1), 0, on_progress,
                  [&](int64_t position, std::span<const float> logits) {
                    const int32_t next = tokens[static_cast<size_t>(position) + 1];
                    int32_t likeliest = 0;
                    nll.push_back(token_nll(engine, logits, next, best ? &likeliest : nullptr));
                    if (best != nullptr) best->push_back(likeliest);
                  });
  return nll;
}

}  // namespace adder
