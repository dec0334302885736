// Saved sessions. The SHA-256 at the end and the model's fingerprint in the header would stop
// every mutation, so the input is what stands between them: the header's text, a zero byte, and the
// data. '@' in the header stands for the fingerprint; the data is filled up with zeros to the size
// that the header asks of this model, and the digest is made right.
#include <cstring>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/session_file.h"
#include "fuzz_io.h"
#include "io/json_lenient.h"
#include "io/sha256.h"

namespace {

adder::Engine& engine() {
  static const auto demo = adder::Engine::load("", {.threads = 1});
  return *demo;
}

void append_u32(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift);
}

// Bytes of data that a header asks for, as far as they stay within what a test can hold.
size_t data_size(const std::string& header) {
  size_t bytes = engine().states().snapshot_bytes();
  try {
    const auto json = adder::JsonValue::parse(header, "header");
    for (const char* key : {"tokens", "logits"}) {
      const int64_t n = json.get_int(key).value_or(0);
      if (n > 0 && n < 4096) bytes += 4 * static_cast<size_t>(n);
    }
  } catch (const adder::Error&) {
  }
  return bytes;
}

std::string sealed_image(std::string_view text) {
  const size_t zero = std::min(text.find('\0'), text.size());
  std::string header(text.substr(0, zero));
  if (const size_t at = header.find('@'); at != std::string::npos) {
    header.replace(at, 1, engine().fingerprint());
  }
  std::string data(zero < text.size() ? text.substr(zero + 1) : "");
  data.resize(std::max(data.size(), data_size(header)));
  std::string image = "ADDERSES";
  append_u32(image, 1);
  append_u32(image, static_cast<uint32_t>(header.size()));
  image += header + data;
  const std::string hex = adder::sha256_hex(std::as_bytes(std::span(image)));
  for (size_t i = 0; i < hex.size(); i += 2) {
    image += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return image;
}

void parse(std::span<const std::byte> bytes) {
  for (const bool header_only : {true, false}) {
    adder::fuzzing::contained([&] {
      const adder::SavedSession session =
          adder::parse_session(engine(), bytes, "fuzz.session", header_only);
      int64_t tokens = 0;
      for (const adder::Stretch& stretch : session.stretches) tokens += stretch.tokens;
      if (tokens != session.info.tokens) std::abort();
      if (session.state == nullptr) return;
      if (static_cast<int64_t>(session.state->tokens.size()) != tokens) std::abort();
      unpark(engine(), *session.state);
    });
  }
  if (engine().states().free_slots() != 1) std::abort();  // a slot was lost
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  parse(adder::fuzzing::input(data, size));
  const std::string image = sealed_image({reinterpret_cast<const char*>(data), size});
  parse(std::as_bytes(std::span(image)));
  return 0;
}
