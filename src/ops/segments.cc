#include "ops/segments.h"

#include <algorithm>

#include "core/error.h"
#include "ops/tile.h"

namespace adder::ops {
namespace {

// Cuts [begin, end) where seq_idx changes. sequence -1: counts sequences from *count on.
void cut(const ArrayView& seq_idx, int64_t begin, int64_t end, int64_t sequence, int64_t* count,
         std::vector<Segment>* segments) {
  for (int64_t t = begin; t < end;) {
    const int64_t id = load_integer(seq_idx, t);
    int64_t stop = t + 1;
    while (stop < end && load_integer(seq_idx, stop) == id) ++stop;
    const int64_t own = sequence >= 0 ? sequence : (*count)++;
    if (id < 0 && sequence < 0) --*count;
    segments->push_back({t, stop, id < 0 ? -1 : own});
    t = stop;
  }
}

}  // namespace

std::vector<Segment> row_segments(const ArrayView& seq_idx, const ArrayView& cu_seqlens,
                                  int64_t seqlen) {
  std::vector<Segment> segments;
  int64_t count = 0;
  const auto add = [&](int64_t begin, int64_t end, int64_t sequence) {
    if (seq_idx) {
      cut(seq_idx, begin, end, sequence, &count, &segments);
    } else if (begin < end) {
      segments.push_back({begin, end, sequence});
    }
  };
  if (!cu_seqlens) {
    add(0, seqlen, seq_idx ? -1 : 0);
    return segments;
  }
  const int64_t sequences = cu_seqlens.dim(0) - 1;
  for (int64_t i = 0; i < sequences; ++i)
    add(load_integer(cu_seqlens, i), load_integer(cu_seqlens, i + 1), i);
  const int64_t end = load_integer(cu_seqlens, sequences);
  if (end < seqlen) segments.push_back({end, seqlen, -1});
  return segments;
}

void check_cu_seqlens(std::string_view op, const ArrayView& cu_seqlens, int64_t total) {
  check_rank(op, "cu_seqlens", cu_seqlens, 1);
  check_integer(op, "cu_seqlens", cu_seqlens);
  ADDER_CHECK(cu_seqlens.dim(0) >= 1, "{}: cu_seqlens: expected at least 1 entry, got none", op);
  int64_t before = 0;
  for (int64_t i = 0; i < cu_seqlens.dim(0); ++i) {
    const int64_t value = load_integer(cu_seqlens, i);
    ADDER_CHECK(i > 0 || value == 0, "{}: cu_seqlens[0]: expected 0, got {}", op, value);
    ADDER_CHECK(value >= before && value <= total, "{}: cu_seqlens[{}]: expected {} to {}, got {}",
                op, i, before, total, value);
    before = value;
  }
}

}  // namespace adder::ops
