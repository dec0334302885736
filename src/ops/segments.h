// Where the sequences lie that share a row of a batch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/array_view.h"

namespace adder::ops {

// Steps [begin, end) of a row.
struct Segment {
  int64_t begin, end;
  int64_t sequence;  // which one it belongs to: 0, 1, ... from the row's start; -1: padding
};

// seq_idx (seqlen): a new sequence begins wherever it changes, and negative entries are padding.
// cu_seqlens (sequences + 1), checked: sequence i is [cu_seqlens[i], cu_seqlens[i + 1]), and what
// lies behind the last one is padding. Each is optional; with both, a sequence of cu_seqlens starts
// anew wherever seq_idx changes inside it as well.
std::vector<Segment> row_segments(const ArrayView& seq_idx, const ArrayView& cu_seqlens,
                                  int64_t seqlen);

// Integers, from 0, never falling, the last one at most `total`: Error(kBadInput) otherwise.
void check_cu_seqlens(std::string_view op, const ArrayView& cu_seqlens, int64_t total);

}  // namespace adder::ops
