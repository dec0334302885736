#include "backends/xla/tape.h"

namespace adder::xla {
namespace {

// An entry: a word of counts, the operands, the attributes.
constexpr int kTapeResultsShift = 8, kTapeOperandsShift = 16, kTapeAttributesShift = 24;

}  // namespace

void Tape::put(int64_t word) {
  words_.push_back(word);
  hash_ = (hash_ ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15ull;
  hash_ ^= hash_ >> 29;
}

Ref Tape::append(TapeOp op, std::span<const int64_t> operands, std::span<const int64_t> attributes,
                 int64_t results) {
  put(static_cast<int64_t>(op) | results << kTapeResultsShift |
      std::ssize(operands) << kTapeOperandsShift | std::ssize(attributes) << kTapeAttributesShift);
  for (const int64_t word : operands) put(word);
  for (const int64_t word : attributes) put(word);
  const Ref first = next_;
  next_ += static_cast<Ref>(results);
  return first;
}

void Tape::clear() {
  words_.clear();
  next_ = 0;
  hash_ = 0;
}

TapeEntry read_tape(std::span<const int64_t> words, size_t& at, Ref& next) {
  const int64_t head = words[at++];
  TapeEntry entry{};
  entry.op = static_cast<TapeOp>(head & 0xff);
  entry.results = head >> kTapeResultsShift & 0xff;
  const auto operands = static_cast<size_t>(head >> kTapeOperandsShift & 0xff);
  const auto attributes = static_cast<size_t>(head >> kTapeAttributesShift);
  entry.operands = words.subspan(at, operands);
  entry.attributes = words.subspan(at + operands, attributes);
  at += operands + attributes;
  entry.first = next;
  next += static_cast<Ref>(entry.results);
  return entry;
}

}  // namespace adder::xla
