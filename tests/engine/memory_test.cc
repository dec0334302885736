// Peak memory does not depend on the length of the prompt.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "engine/engine_testing.h"
#include "engine/generator.h"
#include "engine/scoring.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ADDER_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ADDER_TEST_SANITIZED 1
#endif
#endif

namespace adder {
namespace {

using namespace adder::testing;

constexpr char kTokensVariable[] = "ADDER_TEST_PROMPT_TOKENS";
constexpr char kResultVariable[] = "ADDER_TEST_PEAK_FILE";

int64_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  }
  return 0;
}

class Memory : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Engine, Memory, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

// The high-water mark belongs to a process, so each prompt gets one: this test again, told by the
// environment to be the child.
int64_t peak_of_child(const std::string& test, int64_t tokens) {
  const TempDir dir;
  const std::string filter = "--gtest_filter=" + test;
  std::string program = "/proc/self/exe";
  setenv(kTokensVariable, std::to_string(tokens).c_str(), 1);
  setenv(kResultVariable, dir.path("peak").c_str(), 1);
  char* const arguments[] = {program.data(), const_cast<char*>(filter.c_str()), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  unsetenv(kTokensVariable);
  unsetenv(kResultVariable);
  if (failed != 0) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  int64_t peak = 0;
  std::ifstream(dir.path("peak")) >> peak;
  return peak;
}

TEST_P(Memory, PeakIsTheSameForShortAndLongPrompts) {
#ifdef ADDER_TEST_SANITIZED
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  if (const char* tokens = std::getenv(kTokensVariable)) {
    const auto engine = golden_engine(GetParam(), {.threads = 1});
    const auto prompt = random_ids(1, std::stoll(tokens));
    generate(*engine, greedy(prompt, 4));
    next_token_nll(*engine, prompt);
    std::ofstream(std::getenv(kResultVariable)) << peak_kib();
    return;
  }
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string test = std::string(info->test_suite_name()) + "." + info->name();
  const int64_t small = peak_of_child(test, 1000), large = peak_of_child(test, 20000);
  ASSERT_GT(small, 0);
  // One row of activations of these models is about 400 floats: 19,000 more would be 30 MB. What
  // does grow is the ids and the log-likelihoods of the result, 0.4 MB; the kernel's counter itself
  // wavers by some hundred KiB.
  EXPECT_LT(large, small + 2048) << small << " KiB with 1,000 tokens, " << large
                                 << " KiB with 20,000";
}

}  // namespace
}  // namespace adder
