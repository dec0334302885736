#include "text/normalizer.h"

#include <algorithm>

#include "core/error.h"

namespace adder {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

bool Normalizer::prepends() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.kind == Kind::kPrepend; });
}

std::string Normalizer::replace_matches(const Step& step, std::string_view text) {
  Regex::Searcher searcher(step.regex[0]);
  std::string out;
  size_t done = 0;
  while (done < text.size()) {
    const auto match = searcher.find(text, done);
    if (!match) break;
    out.append(text.substr(done, match->begin - done)).append(step.to);
    done = match->end;
  }
  return out.append(text.substr(done));
}

std::string Normalizer::apply(std::string_view text, bool at_start) const {
  std::string current(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kForm:
        current = normalize_utf8(current, step.form);
        break;
      case Kind::kPrepend:
        if (at_start && !current.empty()) current.insert(0, step.to);
        break;
      case Kind::kReplace:
        current = replace_all(current, step.from, step.to);
        break;
      case Kind::kReplaceRegex:
        current = replace_matches(step, current);
        break;
    }
    // Replacements may make the text longer, a chain of them exponentially so. NFKD of U+FDFA
    // makes 33 bytes of 3.
    ADDER_CHECK(current.size() <= 16 * text.size() + 4096, "normalizer: {} bytes of text become {}",
                text.size(), current.size());
  }
  return current;
}

}  // namespace adder
