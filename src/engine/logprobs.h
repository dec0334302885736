// Log-probabilities from logits on the host.
#pragma once

#include <cstdint>
#include <span>

#include "engine/generator.h"

namespace adder {

// log(sum(exp(logits))), in double. NaN when a logit is NaN.
double log_sum_exp(std::span<const float> logits);

// Of `token`, and of the `top` most probable ids, the lowest id first among equals.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top);

}  // namespace adder
