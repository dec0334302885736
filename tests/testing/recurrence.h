// What the three operations with a state have in common, so that one test covers them all: a
// problem is host data for one packed list of tokens, which can be cut, joined and run.
//
// A Problem type has
//   int64_t tokens;
//   int64_t state_size() const;  int64_t out_width() const;      (floats in a slot, in a row)
//   Problem rows(int64_t begin, int64_t count) const;
//   RunResult run(Backend&, const Batch&, const std::vector<float>& state, const Layout&) const;
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kernels/batch.h"
#include "testing/compare.h"
#include "testing/inputs.h"
#include "testing/op_tensor.h"

namespace adder::testing {

struct Batch {
  std::vector<int32_t> seq_start{0};
  std::vector<int32_t> state_slot;

  void add(int64_t length, int32_t slot) {
    seq_start.push_back(seq_start.back() + static_cast<int32_t>(length));
    state_slot.push_back(slot);
  }
  static Batch single(int64_t tokens, int32_t slot = 0) {
    Batch b;
    b.add(tokens, slot);
    return b;
  }
  PackedBatch packed() const { return {seq_start, state_slot}; }
};

struct RunResult {
  std::vector<float> out;    // token after token
  std::vector<float> state;  // slot after slot
};

inline std::vector<float> cut_rows(const std::vector<float>& v, int64_t rows, int64_t begin,
                                   int64_t count) {
  if (v.empty() || rows == 0) return {};
  const int64_t width = static_cast<int64_t>(v.size()) / rows;
  return {v.begin() + begin * width, v.begin() + (begin + count) * width};
}

inline void append(std::vector<float>& to, std::span<const float> more) {
  to.insert(to.end(), more.begin(), more.end());
}

// One sequence fed in pieces, the state handed on.
template <typename Problem>
RunResult run_pieces(Backend& backend, const Problem& whole, std::span<const int64_t> pieces,
                     std::vector<float> state, const Layout& layout = kPacked) {
  RunResult all;
  int64_t begin = 0;
  for (int64_t length : pieces) {
    RunResult part = whole.rows(begin, length).run(backend, Batch::single(length), state, layout);
    append(all.out, part.out);
    state = std::move(part.state);
    begin += length;
  }
  EXPECT_EQ(begin, whole.tokens) << "pieces must cover the sequence";
  all.state = std::move(state);
  return all;
}

// Each sequence of a batch by itself with its slot alone; padding as the contract has it.
template <typename Problem>
RunResult run_singly(Backend& backend, const Problem& whole, const Batch& batch,
                     const std::vector<float>& state, const Layout& layout = kPacked) {
  RunResult all{{}, state};
  const int64_t slot_size = whole.state_size();
  for (size_t i = 0; i < batch.state_slot.size(); ++i) {
    const int64_t begin = batch.seq_start[i], length = batch.seq_start[i + 1] - begin;
    const int64_t slot = batch.state_slot[i];
    const Problem part = whole.rows(begin, length);
    if (slot < 0) {
      all.out.resize(all.out.size() + static_cast<size_t>(length * whole.out_width()));
      continue;
    }
    const auto at = state.begin() + slot * slot_size;
    RunResult row = part.run(backend, Batch::single(length), {at, at + slot_size}, layout);
    append(all.out, row.out);
    std::copy(row.state.begin(), row.state.end(), all.state.begin() + slot * slot_size);
  }
  return all;
}

inline ::testing::AssertionResult close(const RunResult& got, const RunResult& want,
                                        const Tolerance& tolerance) {
  if (auto out = close(got.out, want.out, tolerance); !out) return out << " (output)";
  if (auto state = close(got.state, want.state, tolerance); !state) return state << " (state)";
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_bits(const RunResult& got, const RunResult& want) {
  if (auto out = same_bits(got.out, want.out); !out) return out << " (output)";
  if (auto state = same_bits(got.state, want.state); !state) return state << " (state)";
  return ::testing::AssertionSuccess();
}

}  // namespace adder::testing
