// The decode loop allocates nothing. This is a program of its own because it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "allocation/allocation_counter.h"

// GCC 12 inlines the pair below and takes free() for the wrong partner of operator new.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {

std::atomic<int64_t> allocations{0};
thread_local int uncounted = 0;

void* counted(size_t bytes, size_t alignment) {
  if (uncounted == 0) ++allocations;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(size_t bytes) {
  return counted(bytes, alignof(std::max_align_t));
}
void* operator new[](size_t bytes) {
  return counted(bytes, alignof(std::max_align_t));
}
// Those of the sanitizers would not go with the deletes below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return counted(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t bytes, const std::nothrow_t& nothrow) noexcept {
  return operator new(bytes, nothrow);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace adder::testing {

int64_t allocation_count() {
  return allocations;
}
Uncounted::Uncounted() {
  ++uncounted;
}
Uncounted::~Uncounted() {
  --uncounted;
}

}  // namespace adder::testing

namespace adder {
namespace {

using namespace adder::testing;

TEST(Allocation, TheCounterCounts) {
  const auto once = [] { ::operator delete(::operator new(4)); };
  EXPECT_EQ(allocations_of(once), 1);
  EXPECT_EQ(allocations_of([&] {
              const Uncounted others;
              once();
            }),
            0);
}

struct Case {
  const char* name;
  void (*set)(GenerationRequest&);
};
const Case kCases[] = {
    {"Greedy", [](GenerationRequest&) {}},
    {"Sampled", [](GenerationRequest& r) { r.sampling.temperature = 0.8f; }},
    {"TopK",
     [](GenerationRequest& r) {
       r.sampling.temperature = 1;
       r.sampling.top_k = 20;
       r.sampling.min_p = 0.05f;
     }},
    {"Penalty", [](GenerationRequest& r) { r.sampling.repeat_penalty = 1.1f; }},
};

class DecodeAllocation : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Allocation, DecodeAllocation, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(DecodeAllocation, NoneInEitherFamily) {
  for (const std::string& model : golden_families()) {
    SCOPED_TRACE(model);
    const auto engine = golden_engine(model, {.slots = 4});
    GenerationRequest request = greedy(random_ids(1, 20), 0);
    GetParam().set(request);
    EXPECT_EQ(for_each_further_token(*engine, {request}), 0);
    EXPECT_EQ(for_each_further_token(*engine, std::vector<GenerationRequest>(4, request)), 0);
  }
}

// With a tokenizer: decoding to text, watching for stop strings, streaming.
TEST_P(DecodeAllocation, NoneWithText) {
  const auto engine = demo_engine();
  GenerationRequest request = greedy(engine->tokenizer().encode("It was a fine morning, and "), 0);
  GetParam().set(request);
  request.stop = {"\x01\x02\x03", "a string that is never said"};
  size_t streamed = 0;
  request.on_text = [&](std::string_view text) { streamed += text.size(); };
  EXPECT_EQ(for_each_further_token(*engine, {request}), 0);
  EXPECT_GT(streamed, 0u);
}

TEST(Allocation, NoneForFurtherBlocksOfThePrompt) {
  for (const std::string& model : golden_families()) {
    SCOPED_TRACE(model);
    const auto engine = golden_engine(model, {.block = 32});
    const auto run = [&](int64_t length) {
      const GenerationRequest request = greedy(random_ids(1, length), 0);
      return allocations_of([&] { generate(*engine, request); });
    };
    run(100);
    EXPECT_EQ(run(100), run(1000));
  }
}

}  // namespace
}  // namespace adder
