// The probes measure something, on every instruction set that this machine can run. How much is no
// matter of a test.
#include "measure/ceilings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/error.h"

namespace adder {
namespace {

TEST(Spread, MedianAndExtremes) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  const Spread rate = rate_of(12, odd);
  EXPECT_EQ(rate.median, 6);
  EXPECT_EQ(rate.min, 4);
  EXPECT_EQ(rate.max, 12);
}

TEST(Ceilings, EveryLimitIsFiniteAndAboveZero) {
  const auto probe = make_machine_probe("cpu", 2);
  EXPECT_EQ(probe->threads(), 2);
  EXPECT_FALSE(probe->name().empty());
  std::vector<std::string> lines;
  const auto ceilings = measure_ceilings(*probe, 2, 0, [&](const auto& l) { lines.push_back(l); });
  ASSERT_EQ(ceilings.size(), std::size(kLimits));
  size_t loops = 0;
  for (const Ceiling& c : ceilings) {
    EXPECT_NE(limit_name(c.limit), "?");
    EXPECT_NE(limit_unit(c.limit), "?");
    ASSERT_FALSE(c.loops.empty());
    loops += c.loops.size();
    for (const LoopRate& loop : c.loops) {
      SCOPED_TRACE(std::string(limit_name(c.limit)) + ", " + loop.loop);
      EXPECT_GT(loop.rate.min, 1e6);  // a million of anything takes no machine a second
      EXPECT_LE(loop.rate.min, loop.rate.median);
      EXPECT_LE(loop.rate.median, loop.rate.max);
      EXPECT_LT(loop.rate.max, 1e16);  // the work was not left out
      EXPECT_GE(c.best().rate.median, loop.rate.median);
    }
  }
  EXPECT_EQ(lines.size(), 2 * loops);
}

TEST(Ceilings, TheForcedInstructionSetIsTheOneThatRuns) {
  setenv("ADDER_FORCE_ISA", "SSE4", 1);
  std::string name;
  try {
    const auto probe = make_machine_probe("cpu", 1);
    name = probe->name();
    for (const Limit limit : {Limit::kFma, Limit::kInt8, Limit::kExp2}) {
      EXPECT_GT(probe->measure(limit, 0, 0), 1e6) << limit_name(limit);
    }
  } catch (const Error&) {  // another architecture
    name = "SSE4";
  }
  unsetenv("ADDER_FORCE_ISA");
  EXPECT_EQ(name, "SSE4");
}

TEST(Ceilings, UnknownLoopsAreRefused) {
  EXPECT_THROW(make_machine_probe("cpu", 1)->measure(Limit::kFma, 1, 0), Error);
}

}  // namespace
}  // namespace adder
