#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace adder {
namespace {

class ThreadPoolSize : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSize, CoversEveryIndexOnceInChunksOfAtMostTheGrain) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (const int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      std::atomic<int64_t> longest{0};
      pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
        ASSERT_TRUE(thread >= 0 && thread < pool.size());
        ASSERT_TRUE(begin < end && end <= count);
        int64_t before = longest.load();
        while (before < end - begin && !longest.compare_exchange_weak(before, end - begin)) {
        }
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& n : seen) ASSERT_EQ(n.load(), 1) << count << " by " << grain;
      ASSERT_LE(longest.load(), grain);
    }
  }
}

// Plain, unsynchronised writes before and after each loop: a missing fence between two loops shows
// under the thread sanitizer, a lost wake-up as a hang.
TEST_P(ThreadPoolSize, StreamsEveryIndexOnceInChunksOfAtLeastTheGrain) {
  ThreadPool pool(GetParam());
  for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 64, 2000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      std::atomic<int> short_chunks{0};
      pool.parallel_stream(count, grain, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_LT(begin, end);
        EXPECT_LT(thread, GetParam());
        if (end - begin < grain) ++short_chunks;
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
      EXPECT_LE(short_chunks.load(), 1) << "only the last one may be";
    }
  }
}

TEST_P(ThreadPoolSize, OrdersManyShortLoopsOneAfterAnother) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(37, 0);
  for (int round = 0; round < 3000; ++round) {
    pool.parallel_for(37, 5, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
    values[static_cast<size_t>(round % 37)] += 1;
  }
  int64_t sum = 0;
  for (const int64_t v : values) sum += v;
  EXPECT_EQ(sum, 3000 * (36 * 37 / 2) + 3000);
}

TEST_P(ThreadPoolSize, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSize, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, TakesOneThreadPerCpuUnlessTold) {
  EXPECT_EQ(ThreadPool().size(), available_cpus());
  EXPECT_EQ(ThreadPool(-1).size(), available_cpus());
}

}  // namespace
}  // namespace adder
