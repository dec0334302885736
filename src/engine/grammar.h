// Grammars that bound what a model may write, compiled to an automaton over the bytes of UTF-8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace adder {

struct GrammarSource;

// Immutable. Every rule is a nondeterministic automaton whose edges take one byte, nothing, or the
// text of another rule; state numbers are shared by all rules.
class Grammar {
 public:
  static constexpr size_t kMaxSource = 64 << 10;  // bytes of GBNF or of a JSON schema
  static constexpr uint32_t kMaxStates = 50'000;
  static constexpr uint32_t kMaxEdges = 400'000;  // of each kind
  static constexpr uint32_t kMaxRepeat = 10'000;  // m and n of {m,n}
  static constexpr uint32_t kMaxNesting = 64;     // groups and operators around one item

  // GBNF, the notation of llama.cpp:
  //   root ::= "yes" | "no" ("," " "? [a-z0-9_]+){1,3}   # comment
  // Rules `name ::= ...` (letters, digits, - and _), literals and classes of Unicode characters
  // with \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH, negated classes, `.` (any character),
  // groups, alternatives, `*`, `+`, `?`, `{m}`, `{m,}`, `{m,n}`. The whole text must match `root`.
  // A rule ends with its line, except inside a group, after `::=` and `|`, and before a line that
  // begins with `|`. Throws Error(kBadInput) "grammar: line N: expected X, got Y" for malformed
  // text, undefined or repeated rules, left recursion (also behind rules that may be empty), rules
  // that can never be completed, and what exceeds the limits above.
  static std::shared_ptr<const Grammar> parse(std::string_view gbnf);
  // The same checks, messages beginning with source.what.
  static std::shared_ptr<const Grammar> compile(const GrammarSource& source);

  struct ByteEdge {
    uint32_t target;
    uint8_t low, high;  // both belong to it
  };
  struct Call {
    uint32_t rule;
    uint32_t target;  // where its text ends
    bool last;        // from target nothing can follow in this rule
  };

  std::span<const ByteEdge> byte_edges(uint32_t state) const { return bytes_.of(state); }
  std::span<const uint32_t> jumps(uint32_t state) const { return jumps_.of(state); }
  std::span<const Call> calls(uint32_t state) const { return calls_.of(state); }
  bool accepts(uint32_t state) const { return accepts_[state] != 0; }  // the rule's text may end
  uint32_t states() const { return static_cast<uint32_t>(accepts_.size()); }

  uint32_t root() const { return root_; }
  uint32_t rules() const { return static_cast<uint32_t>(rules_.size()); }
  uint32_t start(uint32_t rule) const { return rules_[rule].start; }
  bool nullable(uint32_t rule) const { return rules_[rule].nullable; }
  // A rule begins only with rules of larger numbers.
  uint32_t order(uint32_t rule) const { return rules_[rule].order; }

  // Bytes of one class are on the same edges everywhere.
  uint8_t byte_class(uint8_t byte) const { return byte_class_[byte]; }
  uint32_t byte_classes() const { return byte_classes_; }

 private:
  class Compiler;
  Grammar() = default;

  // What belongs to each state, all in one array.
  template <typename T>
  struct Rows {
    std::vector<uint32_t> begin;
    std::vector<T> items;
    std::span<const T> of(uint32_t state) const {
      return std::span(items).subspan(begin[state], begin[state + 1] - begin[state]);
    }
  };
  struct Rule {
    uint32_t start = 0, end = 0;  // states
    uint32_t order = 0;
    bool nullable = false;
  };

  Rows<ByteEdge> bytes_;
  Rows<uint32_t> jumps_;
  Rows<Call> calls_;
  std::vector<uint8_t> accepts_;
  std::vector<Rule> rules_;
  std::array<uint8_t, 256> byte_class_{};
  uint32_t byte_classes_ = 0;
  uint32_t root_ = 0;
};

}  // namespace adder
