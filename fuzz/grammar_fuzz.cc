// Any text as GBNF or as a JSON schema, then a few tokens that the mask allows. The first byte
// picks the kind, the second the tokens. What a schema's grammar calls complete must be strict
// JSON.
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/json_schema_grammar.h"
#include "engine/token_mask.h"
#include "fuzz_io.h"
#include "text/tokenizer.h"

namespace {

constexpr int kSteps = 16;

void require(bool holds) {
  if (!holds) std::abort();
}

void walk(const std::shared_ptr<const adder::Grammar>& grammar, bool is_json, uint32_t choice) {
  static const auto vocabulary =
      std::make_shared<const adder::TokenVocabulary>(*adder::make_byte_tokenizer());
  adder::GrammarMatcher matcher(grammar, vocabulary);
  std::string text;
  for (int step = 0; step < kSteps; ++step) {
    if (is_json && matcher.can_end()) require(nlohmann::json::accept(text));
    std::array<float, 260> logits{};
    constexpr int32_t kEnd[] = {0};
    const bool any = matcher.mask(logits, kEnd);
    require(any == (std::count(logits.begin(), logits.end(), 0.0f) > 0));
    require((logits[0] == 0.0f) == matcher.can_end());
    require(any || matcher.stuck());
    choice = choice * 1664525 + 1013904223;
    // From here on, the first that is allowed; those before it must be refused.
    size_t id = 1 + (choice >> 8) % 255;
    for (int tries = 0; tries < 255 && logits[id] != 0.0f; ++tries) {
      if (tries == 0) {
        bool refused = false;
        try {
          matcher.accept(static_cast<int32_t>(id));
        } catch (const adder::Error&) {
          refused = true;
        }
        require(refused);
      }
      id = id % 255 + 1;
    }
    if (logits[id] != 0.0f) return;
    require(!matcher.must_end());
    matcher.accept(static_cast<int32_t>(id));
    text += static_cast<char>(id);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const bool is_json = data[0] % 2 == 0;
  adder::fuzzing::contained([&] {
    walk(is_json ? adder::json_schema_grammar(text) : adder::Grammar::parse(text), is_json,
         data[1]);
  });
  return 0;
}
