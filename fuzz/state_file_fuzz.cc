// Saved conversations.
#include "engine/state_file.h"
#include "fuzz_io.h"
#include "sealed_fuzz.h"

namespace {

using adder::fuzzing::demo;

void parse(std::span<const std::byte> bytes) {
  adder::fuzzing::contained([&] {
    const adder::Conversation c = adder::parse_conversation(demo(), bytes, "fuzz.state");
    if (!c.state || c.length < 0 || demo().states().free_slots() != 0) std::abort();
    demo().check_tokens(c.recent);
  });
  if (demo().states().free_slots() != 1) std::abort();  // a slot was lost
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  parse(adder::fuzzing::input(data, size));
  const std::string image = adder::fuzzing::sealed_image(
      "ADDERSTA", {reinterpret_cast<const char*>(data), size}, {"recent", "logits"});
  parse(std::as_bytes(std::span(image)));
  return 0;
}
