// Counts calls of operator new, which allocation_test.cc replaces in this program.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine_testing.h"
#include "engine/generator.h"

namespace adder::testing {

int64_t allocation_count();

// What is allocated in its life is not counted: that of somebody else, such as a plugin.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};

template <typename Call>
int64_t allocations_of(Call&& call) {
  const int64_t before = allocation_count();
  call();
  return allocation_count() - before;
}

// A call allocates for its results and buffers; 50 tokens more must not cost one allocation more.
inline int64_t for_each_further_token(Engine& engine, std::vector<GenerationRequest> requests) {
  const auto run = [&](int64_t tokens) {
    for (GenerationRequest& r : requests) r.max_tokens = tokens;
    return allocations_of([&] {
      for (const auto& result : generate(engine, requests)) {
        EXPECT_EQ(static_cast<int64_t>(result.tokens.size()), tokens);
      }
    });
  };
  for (int i = 0; i < 2; ++i)
    run(70);  // scratch grows on first use, and where slots are used again
  const int64_t few = run(20);
  EXPECT_GT(few, 0);
  return run(70) - few;
}

}  // namespace adder::testing
