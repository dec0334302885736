// Steps of one token per sequence, each chosen token fed to the next step without the host between.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/tensor.h"
#include "kernels/batch.h"
#include "kernels/sample.h"

namespace adder {

// The step that a loop repeats: feeds tokens[i] to sequence i of `batch`, whose sequences have one
// row each, and returns logits (rows, vocab) f32. It is called once, to be recorded: the operations
// of the loop's backend are all that it may do. `tokens` and `batch` are passed on to them as they
// are; they stand for what the loop keeps on the device, and their values mean nothing.
using DecodeStep = std::function<Tensor(std::span<const int32_t> tokens, const PackedBatch& batch)>;

// The longest repeat_last_n of a loop.
inline constexpr int32_t kDecodeRecent = 1024;

struct DecodeRow {
  int32_t slot = -1;      // of the state; -1: inert, which every row becomes when it ends
  int32_t token = 0;      // what the first step feeds
  SampleParams sampling;  // `recent`: the last repeat_last_n ids; `uniform` is not used
  int32_t repeat_last_n = 0;
  uint64_t seed = 0,
           index = 0;      // the k-th token is chosen by uniform_at(seed, index + k), k from 0
  int64_t max_tokens = 0;  // at least 1 unless inert
  std::span<const int32_t> stop_ids;  // choosing one ends the row
};

// What a step chose for a row, when it is not an id.
inline constexpr int32_t kDecodeInert = -1;      // the row had ended
inline constexpr int32_t kDecodeNotFinite = -2;  // no finite largest logit, which ends the row

class DecodeLoop {
 public:
  virtual ~DecodeLoop() = default;

  virtual int64_t rows() const = 0;
  virtual int64_t steps_in_flight() const = 0;  // that may be enqueued before one is read

  // Begins with other sequences, at most rows(); the rest is inert. The slots are distinct. Throws
  // Error(kBadInput) with expected against got.
  virtual void start(std::span<const DecodeRow> rows) = 0;
  // Enqueues a step: every row feeds its token and chooses the next one, with the same bits as the
  // operations called one by one. The step that chooses a stop id, or the last of max_tokens, ends
  // the row: its state keeps all that was fed, and neither id is fed.
  virtual void step() = 0;
  // Waits for the oldest step that has not been read: (rows) ids or codes, valid until the next
  // call of the loop.
  virtual std::span<const int32_t> read() = 0;
};

}  // namespace adder
