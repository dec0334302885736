// Packed steps over any set of sequences: the loop's body of everything that generates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"

namespace adder {

class Stepper {
 public:
  explicit Stepper(Engine& engine);

  // A request without a prompt goes on from its conversation's logits: chooses its first token.
  void start(Sequence& sequence);

  // One step for as many of the sequences as fit: first those that generate, then prompts in the
  // order given, one block in all. A sequence whose logits are not finite, or whose editor throws,
  // ends as failed, and the others go on. False when every sequence is done. Allocates nothing once
  // the largest step has been seen.
  bool step(std::span<Sequence* const> sequences);

  // Many steps in one go, if all sequences that are not done generate and the host is asked for
  // nothing but their tokens: in the backend's decode loop, until they are done or one is
  // cancelled. The same results as step by step. False: not possible, nothing has been done.
  bool decode_ahead(std::span<Sequence* const> sequences);

 private:
  static bool can_decode_ahead(const Sequence& s);
  DecodeRow decode_row(Sequence& s) const;
  static void take_decoded(const Engine& engine, Sequence& s, int32_t id);
  bool collect(std::span<Sequence* const> sequences);
  void edit(const Tensor& logits);
  void choose(const Tensor& logits);
  void sample(const Tensor& logits);
  void record_logprobs(Sequence& s, const Tensor& row, int32_t token);
  std::span<const float> raw_logits(Sequence& s, const Tensor& row);

  Engine& engine_;
  std::vector<Piece> pieces_;
  std::vector<Sequence*> stepping_, asking_;
  std::vector<int32_t> rows_, sampled_;
  std::vector<SampleParams> params_;
  std::vector<float> host_logits_;
};

}  // namespace adder
