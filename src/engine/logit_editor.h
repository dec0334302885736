// What changes logits on the host before a token is chosen: biases, penalties, grammars.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace adder {

class LogitEditor {
 public:
  virtual ~LogitEditor() = default;
  // For another sequence that goes on from the same place (n > 1).
  virtual std::unique_ptr<LogitEditor> clone() const = 0;
  // logits: of the ids that can come next, Engine::vocab_limit() of them; -infinity forbids an id.
  // May throw Error(kBadInput), which ends the sequence alone; so does forbidding all ids.
  virtual void edit(std::span<float> logits) = 0;
  // The id that was chosen.
  virtual void accept(int32_t token) = 0;
  // True when nothing may follow: the sequence ends as at an end-of-text token.
  virtual bool finished() const { return false; }
};

// OpenAI's logit_bias, presence_penalty and frequency_penalty: the logit of an id gets its bias,
// minus frequency * (times it was generated), minus presence if it was generated at all.
struct TokenPenalties {
  std::vector<std::pair<int32_t, float>> bias;
  float presence = 0, frequency = 0;
  bool any() const { return !bias.empty() || presence != 0 || frequency != 0; }
};
std::unique_ptr<LogitEditor> make_penalty_editor(TokenPenalties penalties);

// Leaves only the next of `tokens`, one after the other: for repeating what was generated before.
// edit() refuses an id that cannot come next.
std::unique_ptr<LogitEditor> make_forced_editor(std::vector<int32_t> tokens);

// Several editors, applied in order. Null ones are left out; null when none is left.
std::unique_ptr<LogitEditor> chain_editors(std::vector<std::unique_ptr<LogitEditor>> editors);

}  // namespace adder
