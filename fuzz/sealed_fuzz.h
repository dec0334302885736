// For the fuzz targets of sealed files (engine/sealed_file.h). The SHA-256 at the end and the
// model's fingerprint in the header would stop every mutation, so the input is what stands between
// them: the header's text, a zero byte, and the data. '@' in the header stands for the fingerprint;
// the data is filled up with zeros to the size that the header asks of this model, and the digest
// is made right.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "io/json_lenient.h"
#include "io/sha256.h"

namespace adder::fuzzing {

// With one slot.
inline Engine& demo() {
  static const auto engine = Engine::load("", {.threads = 1});
  return *engine;
}

inline void append_u32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift);
}

// Bytes of data that a header asks for, as far as they stay within what a test can hold: a state,
// and 4 bytes for each of what the fields `counts` count.
inline size_t data_size(const std::string& header, std::initializer_list<const char*> counts) {
  size_t bytes = demo().states().snapshot_bytes();
  try {
    const auto json = JsonValue::parse(header, "header");
    for (const char* key : counts) {
      const int64_t n = json.get_int(key).value_or(0);
      if (n > 0 && n < 4096) bytes += 4 * static_cast<size_t>(n);
    }
  } catch (const Error&) {
  }
  return bytes;
}

// A whole file of the kind `magic`, version 1.
inline std::string sealed_image(std::string_view magic, std::string_view text,
                                std::initializer_list<const char*> counts) {
  const size_t zero = std::min(text.find('\0'), text.size());
  std::string header(text.substr(0, zero));
  if (const size_t at = header.find('@'); at != std::string::npos) {
    header.replace(at, 1, demo().fingerprint());
  }
  std::string data(zero < text.size() ? text.substr(zero + 1) : "");
  data.resize(std::max(data.size(), data_size(header, counts)));
  std::string image(magic);
  append_u32(image, 1);
  append_u32(image, static_cast<uint32_t>(header.size()));
  image += header + data;
  const std::string hex = sha256_hex(std::as_bytes(std::span(image)));
  for (size_t i = 0; i < hex.size(); i += 2) {
    image += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return image;
}

}  // namespace adder::fuzzing
