// Any bytes as a config; what is accepted must read back equal from its own text.
#include "fuzz_io.h"
#include "io/json_lenient.h"

namespace {

// Reads a value through every getter.
void visit(const adder::JsonValue& value) {
  using adder::fuzzing::contained;
  contained([&] { value.as_int(); });
  contained([&] { value.as_number(); });
  contained([&] { value.as_bool(); });
  contained([&] { value.as_string(); });
  if (value.is_array()) {
    for (const adder::JsonValue& item : value.as_array()) visit(item);
  } else if (value.is_object()) {
    for (const std::string& key : value.keys()) {
      if (!value.has(key)) std::abort();
      visit(*value.get(key));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace adder;
  fuzzing::contained([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const JsonValue value = JsonValue::parse(text, "fuzz.json");
    visit(value);
    const std::string dumped = value.dump();
    try {
      if (JsonValue::parse(dumped, "dump").dump() != dumped) std::abort();
    } catch (const Error&) {
      std::abort();  // what was accepted must not be refused the second time
    }
  });
  return 0;
}
