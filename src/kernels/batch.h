// A packed step: tokens of several sequences, back to back, without padding.
#pragma once

#include <cstdint>
#include <span>

namespace adder {

struct PackedBatch {
  // seq_start[i] .. seq_start[i + 1] are the rows of sequence i; seq_start[0] == 0 and the last
  // entry is the number of rows. (n_seqs + 1)
  std::span<const int32_t> seq_start;
  // Row of the state tensors that belongs to sequence i; all distinct. -1 marks padding: its output
  // rows are 0 and no state is read or written. (n_seqs)
  std::span<const int32_t> state_slot;

  int64_t n_seqs() const { return static_cast<int64_t>(state_slot.size()); }
  int64_t n_tokens() const { return seq_start.empty() ? 0 : seq_start.back(); }
};

}  // namespace adder
