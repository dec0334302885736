// What the backend has recorded: operations of the contract, not yet of StableHLO.
//
// A step is recorded each time it runs, so recording is appending numbers to a list. The list is
// also the key under which the compiled program is found; only a new one is lowered (lower.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "backends/xla/program.h"

namespace adder::xla {

using Ref = int32_t;  // the number of a value on the tape
inline constexpr Ref kNoRef = -1;

// Attributes are integers, float32 ones by their bits. Values are matrices unless it is said.
enum class TapeOp : uint8_t {
  kArgument,    // attributes: element, shape
  kZeros,       // element, rows, cols
  kResizeRows,  // rows: cut, or filled up with zeros
  kRectangle,   // row, rows, col, cols
  kFlatten,     // rows to keep, elements in all: (1, elements)
  kExtract,     // of a flat value: rows to have, then the numbers of a view
  kSliceAt,     // value, row, col (i32 scalars): rows, cols
  kUpdateAt,    // value, update, row, col (i32 scalars)
  kEmbedding,   // weight, ids
  kGatherRows,  // x, rows
  kRmsNorm,     // x, residual?, weight?: eps; gives out and, with a residual, the new one
  kGatedNorm,   // x, z, weight: eps, groups, norm before gate
  kMatmul,      // x, weight, bias?
  kConv,        // see lower_conv.cc
  kSelective,   // see lower_selective_scan.cc
  kSsd,         // see lower_ssd.cc
  kSample,      // see lower_sample.cc
};

struct TapeEntry {
  TapeOp op;
  std::span<const int64_t> operands, attributes;  // an operand that is not given: kNoRef
  Ref first;                                      // of the results
  int64_t results;
};

class Tape {
 public:
  // The first of `results` new values.
  Ref append(TapeOp op, std::span<const int64_t> operands, std::span<const int64_t> attributes,
             int64_t results = 1);
  void clear();

  std::span<const int64_t> words() const { return words_; }
  Ref size() const { return next_; }  // how many values there are
  int64_t hash() const { return static_cast<int64_t>(hash_); }

 private:
  void put(int64_t word);

  std::vector<int64_t> words_;
  Ref next_ = 0;
  uint64_t hash_ = 0;
};

// Reads the entry that begins at words[at] and moves `at` behind it; `next` counts the values.
TapeEntry read_tape(std::span<const int64_t> words, size_t& at, Ref& next);

}  // namespace adder::xla
