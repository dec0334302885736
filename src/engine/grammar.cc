#include "engine/grammar.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "engine/grammar_expr.h"
#include "io/printable.h"
#include "text/unicode.h"

namespace adder {

class Grammar::Compiler {
 public:
  explicit Compiler(const GrammarSource& source) : source_(source) {}

  std::shared_ptr<const Grammar> run();

 private:
  template <typename T>
  using Edges = std::vector<std::pair<uint32_t, T>>;  // from which state

  uint32_t add_state();
  template <typename T>
  void add_edge(Edges<T>& edges, uint32_t from, T edge);
  // Makes the texts of `expr` lead from one state to the other. Adds edges out of `from` and into
  // `to` only, so that what else begins or ends there is not changed.
  void build(const GrammarExpr& expr, uint32_t from, uint32_t to);
  void build_literal(std::string_view text, uint32_t from, uint32_t to);
  void build_repeat(const GrammarExpr& expr, uint32_t from, uint32_t to);
  void build_range(char32_t first, char32_t last, uint32_t from, uint32_t to);
  template <typename T>
  Rows<T> pack(const Edges<T>& edges) const;
  void pack_all();
  std::vector<uint8_t> reach(bool over_bytes, std::vector<uint8_t>& passable) const;
  void find_nullable_and_order();
  void refuse_endless() const;
  void mark_last_calls();
  void make_byte_classes();
  std::string name_of(uint32_t rule) const { return printable(names_[rule]); }

  const GrammarSource& source_;
  std::shared_ptr<Grammar> out_{new Grammar};
  std::vector<const GrammarExpr*> bodies_;  // the source's rules, then repeated parts
  std::vector<std::string> names_;
  std::vector<uint32_t> rule_of_;  // of each state
  uint32_t rule_ = 0;              // the one that is being built
  Edges<ByteEdge> bytes_;
  Edges<uint32_t> jumps_;
  Edges<Call> calls_;
  // States from which one range of continuation bytes leads to a target, for the class at hand.
  std::map<std::tuple<uint8_t, uint8_t, uint32_t>, uint32_t> tails_;
};

std::shared_ptr<const Grammar> Grammar::compile(const GrammarSource& source) {
  return Compiler(source).run();
}

std::shared_ptr<const Grammar> Grammar::Compiler::run() {
  for (const GrammarSource::Rule& rule : source_.rules) {
    bodies_.push_back(&rule.body);
    names_.push_back(rule.name);
  }
  out_->root_ = source_.root;
  for (rule_ = 0; rule_ < bodies_.size(); ++rule_) {  // build() may append
    Rule rule;
    rule.start = add_state();
    rule.end = add_state();
    out_->rules_.push_back(rule);
    build(*bodies_[rule_], rule.start, rule.end);
  }
  pack_all();
  find_nullable_and_order();
  refuse_endless();
  mark_last_calls();
  make_byte_classes();
  return out_;
}

uint32_t Grammar::Compiler::add_state() {
  if (rule_of_.size() >= kMaxStates) {
    bad_input("{}: expected at most {} states, got more; make it shorter or repeat less",
              source_.what, kMaxStates);
  }
  rule_of_.push_back(rule_);
  return static_cast<uint32_t>(rule_of_.size() - 1);
}

template <typename T>
void Grammar::Compiler::add_edge(Edges<T>& edges, uint32_t from, T edge) {
  if (edges.size() >= kMaxEdges) {
    bad_input("{}: expected at most {} transitions, got more; make it shorter or repeat less",
              source_.what, kMaxEdges);
  }
  edges.emplace_back(from, edge);
}

void Grammar::Compiler::build(const GrammarExpr& expr, uint32_t from, uint32_t to) {
  switch (expr.kind) {
    case GrammarExpr::Kind::kLiteral:
      build_literal(expr.text, from, to);
      break;
    case GrammarExpr::Kind::kClass:
      ADDER_CHECK(!expr.ranges.empty(), "{}: rule {}: expected a character in a class, got none",
                  source_.what, name_of(rule_));
      tails_.clear();
      for (const CodePointRange& range : expr.ranges)
        build_range(range.first, range.last, from, to);
      break;
    case GrammarExpr::Kind::kSequence:
      for (size_t i = 0; i + 1 < expr.parts.size(); ++i) {
        const uint32_t next = add_state();
        build(expr.parts[i], from, next);
        from = next;
      }
      if (expr.parts.empty()) {
        add_edge(jumps_, from, to);
      } else {
        build(expr.parts.back(), from, to);
      }
      break;
    case GrammarExpr::Kind::kChoice:
      ADDER_CHECK(!expr.parts.empty(), "{}: rule {}: expected an alternative, got none",
                  source_.what, name_of(rule_));
      for (const GrammarExpr& part : expr.parts) build(part, from, to);
      break;
    case GrammarExpr::Kind::kRepeat:
      build_repeat(expr, from, to);
      break;
    case GrammarExpr::Kind::kRule:
      add_edge(calls_, from, Call{expr.rule, to, false});
      break;
  }
}

void Grammar::Compiler::build_literal(std::string_view text, uint32_t from, uint32_t to) {
  if (text.empty()) add_edge(jumps_, from, to);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t next = i + 1 < text.size() ? add_state() : to;
    const auto byte = static_cast<uint8_t>(text[i]);
    add_edge(bytes_, from, ByteEdge{next, byte, byte});
    from = next;
  }
}

void Grammar::Compiler::build_repeat(const GrammarExpr& expr, uint32_t from, uint32_t to) {
  const bool unbounded = expr.max == GrammarExpr::kUnbounded;
  const GrammarExpr* part = &expr.parts.front();
  const auto is_small = [](const GrammarExpr& e) {
    return e.kind == GrammarExpr::Kind::kRule ||
           (e.kind == GrammarExpr::Kind::kLiteral && e.text.size() <= 1) ||
           (e.kind == GrammarExpr::Kind::kClass && !e.ranges.empty() && e.ranges.size() <= 4 &&
            e.ranges.back().last < 0x80);
  };
  // A larger part becomes a rule, so that repeats of repeats add up and do not multiply.
  GrammarExpr call;
  const uint32_t copies = unbounded ? std::max<uint32_t>(expr.min, 1) : expr.max;
  if (copies > 1 && !is_small(*part)) {
    bodies_.push_back(part);
    names_.push_back("part of " + names_[rule_]);
    call = GrammarExpr::call(static_cast<uint32_t>(bodies_.size() - 1));
    part = &call;
  }
  const uint32_t before = unbounded && expr.min > 0 ? expr.min - 1 : expr.min;
  for (uint32_t i = 0; i < before; ++i) {
    const uint32_t next = add_state();
    build(*part, from, next);
    from = next;
  }
  if (unbounded) {
    const uint32_t loop = add_state();
    add_edge(jumps_, from, loop);
    if (expr.min == 0) {
      build(*part, loop, loop);
      add_edge(jumps_, loop, to);
    } else {
      const uint32_t once = add_state();
      build(*part, loop, once);
      add_edge(jumps_, once, loop);
      add_edge(jumps_, once, to);
    }
    return;
  }
  for (uint32_t i = expr.min; i < expr.max; ++i) {
    add_edge(jumps_, from, to);
    const uint32_t next = add_state();
    build(*part, from, next);
    from = next;
  }
  add_edge(jumps_, from, to);
}

// Splits the range until every byte of the encodings has a range of its own, independent of the
// others.
void Grammar::Compiler::build_range(char32_t first, char32_t last, uint32_t from, uint32_t to) {
  for (const char32_t longest : {0x7f, 0x7ff, 0xffff}) {  // of 1, 2 and 3 bytes
    if (first <= longest && longest < last) {
      build_range(first, longest, from, to);
      build_range(longest + 1, last, from, to);
      return;
    }
  }
  const int length = first < 0x80 ? 1 : first < 0x800 ? 2 : first < 0x10000 ? 3 : 4;
  for (int i = 1; i < length; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;  // what the last i bytes hold
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      build_range(first, first | mask, from, to);
      build_range((first | mask) + 1, last, from, to);
      return;
    }
    if ((last & mask) != mask) {
      build_range(first, (last & ~mask) - 1, from, to);
      build_range(last & ~mask, last, from, to);
      return;
    }
  }
  std::string low, high;
  append_utf8(low, first);
  append_utf8(high, last);
  for (size_t i = low.size() - 1; i > 0; --i) {
    const auto a = static_cast<uint8_t>(low[i]), b = static_cast<uint8_t>(high[i]);
    auto [tail, is_new] = tails_.try_emplace({a, b, to}, 0);
    if (is_new) {
      tail->second = add_state();
      add_edge(bytes_, tail->second, ByteEdge{to, a, b});
    }
    to = tail->second;
  }
  add_edge(bytes_, from, ByteEdge{to, static_cast<uint8_t>(low[0]), static_cast<uint8_t>(high[0])});
}

template <typename T>
Grammar::Rows<T> Grammar::Compiler::pack(const Edges<T>& edges) const {
  Rows<T> rows;
  rows.begin.assign(rule_of_.size() + 1, 0);
  for (const auto& [from, edge] : edges) ++rows.begin[from + 1];
  for (size_t i = 1; i < rows.begin.size(); ++i) rows.begin[i] += rows.begin[i - 1];
  rows.items.resize(edges.size());
  std::vector<uint32_t> next(rows.begin.begin(), rows.begin.end() - 1);
  for (const auto& [from, edge] : edges) rows.items[next[from]++] = edge;
  return rows;
}

void Grammar::Compiler::pack_all() {
  out_->bytes_ = pack(bytes_);
  out_->jumps_ = pack(jumps_);
  out_->calls_ = pack(calls_);
  out_->accepts_.assign(rule_of_.size(), 0);
  for (const Rule& rule : out_->rules_) out_->accepts_[rule.end] = 1;
}

// The states that can be reached from the starts of their rules over the calls of passable rules
// and, with over_bytes, over bytes. A rule whose end is reached becomes passable. Linear in the
// grammar.
std::vector<uint8_t> Grammar::Compiler::reach(bool over_bytes,
                                              std::vector<uint8_t>& passable) const {
  std::vector<uint8_t> reached(rule_of_.size());
  std::vector<uint32_t> work;
  std::vector<std::vector<uint32_t>> waiting(out_->rules());  // targets of calls not yet passable
  const auto visit = [&](uint32_t state) {
    if (reached[state] == 0) work.push_back(state);
    reached[state] = 1;
  };
  for (const Rule& rule : out_->rules_) visit(rule.start);
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (const uint32_t target : out_->jumps(state)) visit(target);
    if (over_bytes) {
      for (const ByteEdge& edge : out_->byte_edges(state)) visit(edge.target);
    }
    for (const Call& call : out_->calls(state)) {
      if (passable[call.rule] != 0) {
        visit(call.target);
      } else {
        waiting[call.rule].push_back(call.target);
      }
    }
    const uint32_t rule = rule_of_[state];
    if (out_->accepts(state) && passable[rule] == 0) {
      passable[rule] = 1;
      for (const uint32_t target : waiting[rule]) visit(target);
    }
  }
  return reached;
}

// A rule begins with those that are called from states reached without a byte. Depth first, so that
// a cycle shows as a rule that is met again while it is open.
void Grammar::Compiler::find_nullable_and_order() {
  const uint32_t rules = out_->rules();
  std::vector<uint8_t> nullable(rules);
  const std::vector<uint8_t> reached = reach(false, nullable);
  std::vector<std::vector<uint32_t>> begins(rules);
  for (uint32_t state = 0; state < rule_of_.size(); ++state) {
    if (reached[state] == 0) continue;
    for (const Call& call : out_->calls(state)) begins[rule_of_[state]].push_back(call.rule);
  }
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> seen(rules, kNew);
  std::vector<std::pair<uint32_t, size_t>> open;  // rule, how many of its beginnings are done
  uint32_t next_order = rules;
  for (uint32_t root = 0; root < rules; ++root) {
    if (seen[root] == kNew) open.emplace_back(root, 0);
    seen[root] = std::max<uint8_t>(seen[root], kOpen);
    while (!open.empty()) {
      const uint32_t rule = open.back().first;
      if (open.back().second == begins[rule].size()) {
        seen[rule] = kDone;
        out_->rules_[rule].order = --next_order;
        open.pop_back();
        continue;
      }
      const uint32_t begin = begins[rule][open.back().second++];
      if (seen[begin] == kOpen) {
        bad_input("{}: rule {} begins with itself: left recursion is not supported", source_.what,
                  name_of(begin));
      }
      if (seen[begin] == kNew) {
        seen[begin] = kOpen;
        open.emplace_back(begin, 0);
      }
    }
  }
  for (uint32_t rule = 0; rule < rules; ++rule) {
    out_->rules_[rule].nullable = nullable[rule] != 0;
  }
}

// With such a rule a text could be begun that has no end.
void Grammar::Compiler::refuse_endless() const {
  std::vector<uint8_t> finite(out_->rules());
  reach(true, finite);
  for (uint32_t rule = 0; rule < finite.size(); ++rule) {
    ADDER_CHECK(finite[rule] != 0,
                "{}: rule {} can never be completed: every alternative leads back to it",
                source_.what, name_of(rule));
  }
}

// From every state the end of its rule can be reached, so a state without bytes and calls, also
// behind jumps, has nothing left but the end.
void Grammar::Compiler::mark_last_calls() {
  std::vector<std::vector<uint32_t>> back(rule_of_.size());
  for (const auto& [from, target] : jumps_) back[target].push_back(from);
  std::vector<uint8_t> goes_on(rule_of_.size());
  std::vector<uint32_t> work;
  const auto visit = [&](uint32_t state) {
    if (goes_on[state] == 0) work.push_back(state);
    goes_on[state] = 1;
  };
  for (const auto& [from, edge] : bytes_) visit(from);
  for (const auto& [from, call] : calls_) visit(from);
  while (!work.empty()) {
    const uint32_t state = work.back();
    work.pop_back();
    for (const uint32_t from : back[state]) visit(from);
  }
  for (Call& call : out_->calls_.items) call.last = goes_on[call.target] == 0;
}

void Grammar::Compiler::make_byte_classes() {
  std::array<bool, 257> begins{};
  for (const auto& [from, edge] : bytes_) {
    begins[edge.low] = true;
    begins[static_cast<size_t>(edge.high) + 1] = true;
  }
  uint32_t current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    out_->byte_class_[byte] = static_cast<uint8_t>(current);
  }
  out_->byte_classes_ = current + 1;
}

}  // namespace adder
