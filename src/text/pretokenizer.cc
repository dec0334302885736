#include "text/pretokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/unicode.h"

namespace adder {
namespace {

// English contractions; letters, numbers or other signs with an optional blank before them; blanks
// that do not touch the next word; blanks.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Splits the spans by a property of characters: runs without it, single characters with it.
template <typename Predicate>
void spans_of_characters(std::string_view text, Predicate has, auto& spans) {
  uint32_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Part part = next_utf8(text, at);
    const auto begin = static_cast<uint32_t>(at), end = static_cast<uint32_t>(at + part.length);
    if (has(part.code_point)) {
      if (done < begin) spans.push_back({done, begin, false});
      spans.push_back({begin, end, true});
      done = end;
    }
    at = end;
  }
  if (done < text.size()) spans.push_back({done, static_cast<uint32_t>(text.size()), false});
}

// Finds matches one after another by `find(from)` and fills in what lies between them.
template <typename Find>
void spans_of_matches(std::string_view text, Find find, auto& spans) {
  uint32_t done = 0;
  while (done < text.size()) {
    const std::optional<Match> match = find(done);
    if (!match) break;
    const auto begin = static_cast<uint32_t>(match->begin), end = static_cast<uint32_t>(match->end);
    if (done < begin) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    done = end;
  }
  if (done < text.size()) spans.push_back({done, static_cast<uint32_t>(text.size()), false});
}

}  // namespace

void Pretokenizer::add_regex(Regex regex, SplitBehavior behavior, bool invert) {
  Step step{.kind = Kind::kRegex, .behavior = behavior, .invert = invert};
  step.regex.push_back(std::move(regex));
  steps_.push_back(std::move(step));
}

void Pretokenizer::add_literal(std::string text, SplitBehavior behavior, bool invert) {
  steps_.push_back(
      {.kind = Kind::kLiteral, .behavior = behavior, .invert = invert, .text = std::move(text)});
}

void Pretokenizer::add_digits(bool individual) {
  steps_.push_back(
      {.kind = Kind::kDigits,
       .behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
}

void Pretokenizer::add_punctuation(SplitBehavior behavior) {
  steps_.push_back({.kind = Kind::kPunctuation, .behavior = behavior});
}

void Pretokenizer::add_white_space() {
  steps_.push_back({.kind = Kind::kWhiteSpace, .behavior = SplitBehavior::kRemoved});
}

void Pretokenizer::add_byte_level(bool add_prefix_space, bool use_regex) {
  Step step{.kind = Kind::kByteLevel, .prefix = add_prefix_space, .cut = use_regex};
  if (use_regex) step.regex.emplace_back(kGpt2Pattern, "pre_tokenizer ByteLevel");
  steps_.push_back(std::move(step));
  byte_level_ = true;
  prepends_always_ = prepends_always_ || add_prefix_space;
}

void Pretokenizer::add_metaspace(std::string replacement, PrependScheme scheme, bool split) {
  steps_.push_back({.kind = Kind::kMetaspace,
                    .behavior = SplitBehavior::kMergedWithNext,
                    .cut = split,
                    .scheme = scheme,
                    .text = std::move(replacement)});
  prepends_always_ = prepends_always_ || scheme == PrependScheme::kAlways;
  prepends_first_ = prepends_first_ || scheme == PrependScheme::kFirst;
}

Pretokenizer::Words Pretokenizer::split(std::string text, bool at_start, bool after_bytes) const {
  ADDER_CHECK(text.size() < (size_t{1} << 31), "text: {} bytes, at most 2^31 - 1 are tokenized",
              text.size());
  Words words;
  words.text = std::move(text);
  if (!words.text.empty()) words.ranges.push_back({0, static_cast<uint32_t>(words.text.size())});
  bool as_characters = false;
  for (const Step& step : steps_) {
    if (step.kind == Kind::kMetaspace || (step.kind == Kind::kByteLevel && step.prefix)) {
      rewrite(step, words, at_start, after_bytes);
    }
    if (step.cut) cut(step, words, as_characters);
    // GPT-2's pattern works on the text as it was; the steps after it see the characters.
    if (step.kind == Kind::kByteLevel) as_characters = true;
  }
  return words;
}

// Replaces blanks and puts prefixes in front, which moves everything: the text is built anew.
void Pretokenizer::rewrite(const Step& step, Words& words, bool at_start, bool after_bytes) const {
  const bool metaspace = step.kind == Kind::kMetaspace;
  const std::string_view blank = metaspace ? std::string_view(step.text) : " ";
  Words out;
  out.text.reserve(words.text.size() + words.text.size() / 4);
  for (size_t i = 0; i < words.ranges.size(); ++i) {
    const auto begin = static_cast<uint32_t>(out.text.size());
    const std::string_view word = words.word(i);
    const bool first = words.ranges[i].begin == 0;
    const bool has_blank = word.starts_with(blank) || word.starts_with(' ');
    const bool wanted = !metaspace || step.scheme == PrependScheme::kAlways ||
                        (step.scheme == PrependScheme::kFirst && at_start && first);
    if (wanted && !has_blank && !(after_bytes && first)) out.text.append(blank);
    for (const char c : word) {
      if (c == ' ') {
        out.text.append(blank);
      } else {
        out.text.push_back(c);
      }
    }
    ADDER_CHECK(out.text.size() < (size_t{1} << 31), "text: too long to be tokenized");
    out.ranges.push_back({begin, static_cast<uint32_t>(out.text.size())});
  }
  words = std::move(out);
}

void Pretokenizer::find_spans(const Step& step, Regex::Searcher* searcher, std::string_view text,
                              std::vector<Span>& spans) {
  switch (step.kind) {
    case Kind::kRegex:
    case Kind::kByteLevel:
      spans_of_matches(
          text, [&](size_t from) { return searcher->find(text, from); }, spans);
      break;
    case Kind::kLiteral:
    case Kind::kMetaspace: {
      const auto find = [&](size_t from) -> std::optional<Match> {
        const size_t at = text.find(step.text, from);
        if (at == std::string_view::npos) return std::nullopt;
        return Match{at, at + step.text.size()};
      };
      spans_of_matches(text, find, spans);
      break;
    }
    case Kind::kDigits:
      spans_of_characters(text, is_numeric, spans);
      break;
    case Kind::kPunctuation:
      spans_of_characters(text, is_punctuation, spans);
      break;
    case Kind::kWhiteSpace:
      spans_of_characters(text, is_white_space, spans);
      break;
  }
}

void Pretokenizer::cut(const Step& step, Words& words, bool as_characters) const {
  std::optional<Regex::Searcher> searcher;
  if (!step.regex.empty()) searcher.emplace(step.regex[0]);
  std::vector<Words::Range> out;
  out.reserve(words.ranges.size());
  std::vector<Span> spans;
  std::string characters;
  for (size_t i = 0; i < words.ranges.size(); ++i) {
    std::string_view text = words.word(i);
    const uint32_t base = words.ranges[i].begin;
    if (as_characters) {
      characters.clear();
      for (const char c : text) append_utf8(characters, byte_to_character(static_cast<uint8_t>(c)));
      text = characters;
    }
    spans.clear();
    find_spans(step, searcher ? &*searcher : nullptr, text, spans);
    if (as_characters) {
      // Back from positions in the characters to bytes: one character is one byte.
      uint32_t bytes = 0, at = 0;
      for (Span& span : spans) {
        span.begin = bytes;
        for (; at < span.end; ++at) bytes += (static_cast<uint8_t>(text[at]) & 0xc0) != 0x80;
        span.end = bytes;
      }
    }
    if (step.invert) {
      for (Span& span : spans) span.match = !span.match;
    }
    const size_t first = out.size();  // pieces of other words are never joined
    const auto emit = [&](const Span& span) {
      out.push_back({base + span.begin, base + span.end});
    };
    bool previous_match = false;
    for (size_t k = 0; k < spans.size(); ++k) {
      const Span& span = spans[k];
      bool join = false;  // with the piece before
      switch (step.behavior) {
        case SplitBehavior::kRemoved:
          if (span.match) continue;
          break;
        case SplitBehavior::kIsolated:
          break;
        case SplitBehavior::kContiguous:
          join = span.match == previous_match;
          break;
        case SplitBehavior::kMergedWithPrevious:
          join = span.match && !previous_match;
          break;
        case SplitBehavior::kMergedWithNext:
          // Of several matches in a row only the last one joins what follows.
          join = !span.match && previous_match;
          break;
      }
      if (join && k > 0 && out.size() > first) {
        out.back().end = base + span.end;
      } else {
        emit(span);
      }
      previous_match = span.match;
    }
  }
  words.ranges = std::move(out);
}

}  // namespace adder
