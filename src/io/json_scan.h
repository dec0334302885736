// One pass over JSON text before it is parsed: it bounds what a parser may have to allocate and
// finds the bare Infinity, -Infinity and NaN that strict parsers refuse.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace adder {

// "Infinity", "+Infinity", "-Infinity", the same as "inf", and "NaN" or "nan".
std::optional<double> special_number(std::string_view word);

struct JsonScan {
  // A bare word that text() shows as a string, i.e. with two more bytes than the source.
  struct Bare {
    size_t source_byte;     // where it begins in the source
    size_t string_ordinal;  // how many strings and keys come before it
    double value;
  };

  std::string_view source;  // without a byte order mark
  std::vector<Bare> bare;
  std::string rewritten;  // source with the bare words in quotes; empty when there are none

  std::string_view text() const { return bare.empty() ? source : rewritten; }
  // Line and column, from 1, of a parser's position (bytes of text() read when it stopped).
  std::pair<size_t, size_t> locate(size_t position) const;
};

// Throws Error(kBadInput) when a limit named in json_lenient.h is exceeded. `source` must outlive
// the result.
JsonScan scan_json(std::string_view source, const std::string& name);

}  // namespace adder
