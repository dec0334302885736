#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <vector>

#include "core/error.h"

namespace adder {

namespace {

// Members of a set, to be put between brackets.
constexpr std::string_view kWhiteSpace =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_set_) {
        set_member(c);
      } else {
        outside(c);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void unsupported(std::string_view what) const {
    fail(ErrorCode::kUnsupported, "{}: pattern '{}': {} is not supported", where_, in_, what);
  }

  void copy(size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }
  bool looking_at(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  // Emits a set given by its members; inside brackets a negated one cannot be written.
  void members(std::string_view text, bool negated) {
    at_ += 2;
    if (in_set_) {
      out_.append(text);
    } else {
      out_.append(negated ? "[^" : "[").append(text).append("]");
    }
  }

  void escape() {
    if (!in_set_) atom_ = out_.size();
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (c == 's' || (c == 'S' && !in_set_)) return members(kWhiteSpace, c == 'S');
    if (c == 'w' || (c == 'W' && !in_set_)) return members(kWord, c == 'W');
    if (c == 'h' || (c == 'H' && !in_set_)) return members(kHexDigit, c == 'H');
    if (c == 'W' || c == 'H') unsupported("a negated class inside brackets");
    if (c == 'v') return members("\\x0b", false);
    if (c == 'u') {
      const std::string_view digits = in_.substr(at_ + 2, 4);
      bool good = digits.size() == 4;
      for (const char d : digits) good = good && std::isxdigit(static_cast<unsigned char>(d)) != 0;
      if (!good) bad_input("{}: pattern '{}': \\u needs four hexadecimal digits", where_, in_);
      out_.append("\\x{").append(digits).append("}");
      at_ += 6;
      return;
    }
    if ((c == 'p' || c == 'P') && looking_at({in_.data() + at_, 2}) && at_ + 2 < in_.size() &&
        in_[at_ + 2] == '{') {
      const size_t close = in_.find('}', at_);
      if (close != std::string_view::npos) return copy(close + 1 - at_);
    }
    copy(at_ + 1 < in_.size() ? 2 : 1);
  }

  void set_member(char c) {
    if (c == '[') {
      const size_t close = in_.find(":]", at_);
      if (!looking_at("[:") || close == std::string_view::npos) unsupported("a set inside a set");
      return copy(close + 2 - at_);
    }
    if (looking_at("&&")) unsupported("an intersection of sets");
    if (c == ']') in_set_ = false;
    copy(1);
  }

  void outside(char c) {
    if (c == '{' || c == '*' || c == '+' || c == '?') return quantifier(c);
    if (c == '(') {
      groups_.push_back(out_.size());
      copy(1);
      if (looking_at("?")) group_options();
      return;
    }
    if (c == ')') {
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
      return copy(1);
    }
    atom_ = out_.size();
    if (c == '[') {
      in_set_ = true;
      copy(1);
      if (looking_at("^")) copy(1);
      if (looking_at("]")) copy(1);  // a bracket in the first place is a member
      return;
    }
    copy(1);
  }

  // (?imx-imx: and (?imx-imx): Ruby's m is what Perl calls s.
  void group_options() {
    size_t end = at_ + 1;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos) {
      ++end;
    }
    copy(1);
    if (end >= in_.size() || (in_[end] != ':' && in_[end] != ')')) return;
    for (; at_ < end; ++at_) out_.push_back(in_[at_] == 'm' ? 's' : in_[at_]);
  }

  void quantifier(char c) {
    size_t end = at_ + 1;
    if (c != '{') return copy(1);
    while (end < in_.size() &&
           (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == ',')) {
      ++end;
    }
    if (end >= in_.size() || in_[end] != '}' || end == at_ + 1) return copy(1);
    std::string_view interval = in_.substr(at_ + 1, end - at_ - 1);
    // x{n,m}+ repeats the repetition; in PCRE2 the plus would make it possessive.
    const bool plus = end + 1 < in_.size() && in_[end + 1] == '+';
    if (plus) out_.insert(atom_, "(?:");
    out_.append(interval.starts_with(',') ? "{0" : "{").append(interval).append(plus ? "})" : "}");
    at_ = end + 1;
  }

  std::string_view in_, where_;
  std::string out_;
  size_t at_ = 0;
  bool in_set_ = false;
  size_t atom_ = 0;             // where in out_ the newest atom starts
  std::vector<size_t> groups_;  // where the open groups start
};

}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view where) : where_(where) {
  constexpr size_t kLongestPattern = 16384;
  ADDER_CHECK(pattern.size() <= kLongestPattern, "{}: pattern has {} bytes, at most {} are read",
              where, pattern.size(), kLongestPattern);
  const std::string translated = oniguruma_to_pcre2(pattern, where);
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    bad_input("{}: pattern '{}': {} (at {} of '{}')", where, pattern,
              reinterpret_cast<const char*>(message), offset, translated);
  }
  // Without a JIT, or without memory for it, the interpreter does the same work more slowly.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  code_ = std::move(code);
}

struct Regex::Searcher::State {
  pcre2_match_data* data;
  pcre2_match_context* context;
};

Regex::Searcher::Searcher(const Regex& regex) : regex_(regex), state_(new State{}) {
  state_->data = pcre2_match_data_create_from_pattern(regex.code_->code, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  ADDER_CHECK(state_->data != nullptr && state_->context != nullptr, "{}: out of memory",
              regex.where_);
  pcre2_set_heap_limit(state_->context, 64 * 1024);  // KiB
}

Regex::Searcher::~Searcher() {
  pcre2_match_context_free(state_->context);
  pcre2_match_data_free(state_->data);
}

std::optional<Match> Regex::Searcher::find(std::string_view text, size_t from) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // Useful patterns take a bounded number of steps of backtracking for each byte.
  const size_t steps = 200'000 + 64 * text.size();
  pcre2_set_match_limit(state_->context,
                        static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
  uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  int count = pcre2_match(regex_.code_->code, subject, text.size(), from, options, state_->data,
                          state_->context);
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
    // The compiled code has 32 KiB of stack; the interpreter takes the heap.
    options |= PCRE2_NO_JIT;
    count = pcre2_match(regex_.code_->code, subject, text.size(), from, options, state_->data,
                        state_->context);
  }
  if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (count < 0) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(count, message, sizeof message);
    bad_input("{}: the pattern fails on this text: {}", regex_.where_,
              reinterpret_cast<const char*>(message));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data);
  // \K in a look-ahead can put the start behind the end.
  if (bounds[0] >= bounds[1] || bounds[0] < from) return std::nullopt;
  return Match{bounds[0], bounds[1]};
}

}  // namespace adder
