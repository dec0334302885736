#include "engine/generator.h"

#include <map>
#include <memory>
#include <set>

#include "core/error.h"
#include "engine/sequence.h"
#include "engine/stepper.h"

namespace adder {
namespace {

// The slots that the requests will take: one for each new sequence, and one for each that shares
// its state with somebody and is going to write it. The last owner of a shared slot keeps it.
int64_t needed_slots(std::span<const GenerationRequest> requests) {
  struct Shared {
    int64_t writers = 0, handles = 0;
  };
  int64_t needed = 0;
  std::map<int32_t, Shared> shared;
  for (const GenerationRequest& r : requests) {
    if (r.conversation == nullptr || !r.conversation->state) {
      ++needed;
    } else if (!r.prompt.empty() || r.max_tokens > 0) {
      Shared& slot = shared[r.conversation->state.slot()];
      ++slot.writers;
      slot.handles = r.conversation->state.handles();
    }
  }
  for (const auto& [index, slot] : shared) {
    needed += slot.writers == slot.handles ? slot.writers - 1 : slot.writers;
  }
  return needed;
}

void check_requests(Engine& engine, std::span<const GenerationRequest> requests) {
  std::set<const Conversation*> conversations;
  for (const GenerationRequest& r : requests) {
    check_request(engine, r);
    ADDER_CHECK(r.conversation == nullptr || conversations.insert(r.conversation).second,
                "conversation: expected a different one for each request, got the same twice");
  }
  const int64_t free = engine.states().free_slots(), needed = needed_slots(requests);
  ADDER_CHECK(needed <= free, "generate: expected at most {} new sequences, got {}", free, needed);
}

template <typename Number>
void check_range(std::string_view option, Number value, Number low, Number high) {
  if (!(value >= low && value <= high)) {
    bad_input("{}: expected a number from {} to {}, got {}", option, low, high, value);
  }
}

}  // namespace

void SamplingOptions::validate() const {
  check_range("temp", temperature, 0.0f, 100.0f);
  check_range("top-k", top_k, 0, 1 << 30);
  check_range("top-p", top_p, 0.0f, 1.0f);
  check_range("min-p", min_p, 0.0f, 1.0f);
  check_range("repeat-penalty", repeat_penalty, 0.01f, 100.0f);
  check_range("repeat-last-n", repeat_last_n, 0, 1 << 30);
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

std::vector<GenerationResult> generate(Engine& engine,
                                       std::span<const GenerationRequest> requests) {
  check_requests(engine, requests);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Sequence*> order;
  for (const GenerationRequest& r : requests) {
    order.push_back(sequences.emplace_back(std::make_unique<Sequence>(engine, r)).get());
  }
  Stepper stepper(engine);
  const auto check_failed = [&] {
    for (const Sequence* s : order) {
      if (s->error()) throw Error(*s->error());
      if (s->failed()) engine.explain_non_finite();
    }
  };
  for (Sequence* s : order) {
    if (s->request().prompt.empty()) stepper.start(*s);
  }
  check_failed();
  while (stepper.decode_ahead(order) || stepper.step(order)) check_failed();
  std::vector<GenerationResult> results;
  for (Sequence* s : order) {
    s->close();
    results.push_back(s->take_result());
  }
  return results;
}

GenerationResult generate(Engine& engine, const GenerationRequest& request) {
  return std::move(generate(engine, std::span(&request, 1)).front());
}

}  // namespace adder
