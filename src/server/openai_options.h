// The options that completions and chat completions share. Of the server's own .cc files only.
#pragma once

#include <initializer_list>

#include "server/json.h"
#include "server/openai_request.h"

namespace adder {

// Everything of GenerationOptions but max_tokens and the log-probabilities, which the two
// endpoints spell differently. `text` is what `body` was parsed from.
GenerationOptions read_generation_options(const Json& body, std::string_view text,
                                          const ApiLimits& limits);
// The first of `names` that is set, from `low` to what the server allows.
int64_t read_max_tokens(const Json& body, std::initializer_list<const char*> names, int64_t low,
                        int64_t otherwise, const ApiLimits& limits);

// Fields that may only be absent, null or empty.
void refuse_unsupported(const Json& body, std::initializer_list<const char*> names);
// "none" and "auto" are what happens anyway without tools.
void refuse_tool_choice(const Json& body, const char* name);

}  // namespace adder
