#include "engine/logit_editor.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace adder {
namespace {

class PenaltyEditor : public LogitEditor {
 public:
  explicit PenaltyEditor(TokenPenalties penalties) : penalties_(std::move(penalties)) {}

  std::unique_ptr<LogitEditor> clone() const override {
    return std::make_unique<PenaltyEditor>(*this);
  }

  void edit(std::span<float> logits) override {
    const auto at = [&](int32_t id) -> float& { return logits[static_cast<size_t>(id)]; };
    for (const auto& [id, bias] : penalties_.bias) {
      ADDER_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size(),
                  "logit_bias: expected ids from 0 to {}, got {}", logits.size() - 1, id);
      at(id) += bias;
    }
    for (const auto& [id, count] : counts_) {
      at(id) -= penalties_.presence + penalties_.frequency * static_cast<float>(count);
    }
  }

  void accept(int32_t token) override {
    if (penalties_.presence != 0 || penalties_.frequency != 0) ++counts_[token];
  }

 private:
  TokenPenalties penalties_;
  std::unordered_map<int32_t, int64_t> counts_;
};

class ForcedEditor : public LogitEditor {
 public:
  explicit ForcedEditor(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}

  std::unique_ptr<LogitEditor> clone() const override {
    return std::make_unique<ForcedEditor>(*this);
  }

  void edit(std::span<float> logits) override {
    ADDER_CHECK(next_ < tokens_.size(), "forced tokens: expected no more than {}", tokens_.size());
    const int32_t id = tokens_[next_];
    ADDER_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size(),
                "forced tokens[{}]: expected ids from 0 to {}, got {}", next_, logits.size() - 1,
                id);
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
    logits[static_cast<size_t>(id)] = 0;
  }

  void accept(int32_t) override { ++next_; }

 private:
  std::vector<int32_t> tokens_;
  size_t next_ = 0;
};

class EditorChain : public LogitEditor {
 public:
  explicit EditorChain(std::vector<std::unique_ptr<LogitEditor>> editors)
      : editors_(std::move(editors)) {}

  std::unique_ptr<LogitEditor> clone() const override {
    std::vector<std::unique_ptr<LogitEditor>> copies;
    for (const auto& editor : editors_) copies.push_back(editor->clone());
    return std::make_unique<EditorChain>(std::move(copies));
  }

  void edit(std::span<float> logits) override {
    for (const auto& editor : editors_) editor->edit(logits);
  }

  void accept(int32_t token) override {
    for (const auto& editor : editors_) editor->accept(token);
  }

  bool finished() const override {
    return std::any_of(editors_.begin(), editors_.end(),
                       [](const auto& editor) { return editor->finished(); });
  }

 private:
  std::vector<std::unique_ptr<LogitEditor>> editors_;
};

}  // namespace

std::unique_ptr<LogitEditor> make_penalty_editor(TokenPenalties penalties) {
  return std::make_unique<PenaltyEditor>(std::move(penalties));
}

std::unique_ptr<LogitEditor> make_forced_editor(std::vector<int32_t> tokens) {
  return std::make_unique<ForcedEditor>(std::move(tokens));
}

std::unique_ptr<LogitEditor> chain_editors(std::vector<std::unique_ptr<LogitEditor>> editors) {
  std::erase(editors, nullptr);
  if (editors.empty()) return nullptr;
  if (editors.size() == 1) return std::move(editors.front());
  return std::make_unique<EditorChain>(std::move(editors));
}

}  // namespace adder
