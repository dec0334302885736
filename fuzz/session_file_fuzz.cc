// Saved sessions.
#include "engine/session_file.h"
#include "fuzz_io.h"
#include "sealed_fuzz.h"

namespace {

using adder::fuzzing::demo;

void parse(std::span<const std::byte> bytes) {
  for (const bool header_only : {true, false}) {
    adder::fuzzing::contained([&] {
      const adder::SavedSession session =
          adder::parse_session(demo(), bytes, "fuzz.session", header_only);
      int64_t tokens = 0;
      for (const adder::Stretch& stretch : session.stretches) tokens += stretch.tokens;
      if (tokens != session.info.tokens) std::abort();
      if (session.state == nullptr) return;
      if (static_cast<int64_t>(session.state->tokens.size()) != tokens) std::abort();
      adder::unpark(demo(), *session.state);
    });
  }
  if (demo().states().free_slots() != 1) std::abort();  // a slot was lost
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  parse(adder::fuzzing::input(data, size));
  const std::string image = adder::fuzzing::sealed_image(
      "ADDERSES", {reinterpret_cast<const char*>(data), size}, {"tokens", "logits"});
  parse(std::as_bytes(std::span(image)));
  return 0;
}
