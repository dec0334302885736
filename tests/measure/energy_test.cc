#include "measure/energy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/io_testing.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

class Energy : public ::testing::Test {
 protected:
  Energy() {
    // Two packages; a part of one, which must not count twice; something else.
    set("intel-rapl:0", 1'000'000, 262'143'000'000);
    set("intel-rapl:1", 5'000'000, 262'143'000'000);
    set("intel-rapl:0:0", 7'000'000, 262'143'000'000);
    write(fs::path(folder_.path()) / "dtpm" / "enabled", "1\n");
  }
  void set(const std::string& name, uint64_t microjoules, uint64_t range = 0) {
    write(fs::path(folder_.path()) / name / "energy_uj", std::to_string(microjoules) + "\n");
    if (range != 0)
      write(fs::path(folder_.path()) / name / "max_energy_range_uj", std::to_string(range));
  }
  testing::TempDir folder_;
};

TEST_F(Energy, PackagesAddUp) {
  const EnergyMeter meter(folder_.path());
  const auto before = meter.read();
  set("intel-rapl:0", 2'500'000);
  set("intel-rapl:1", 5'250'000);
  set("intel-rapl:0:0", 9'000'000);
  const auto joules = meter.joules(before, meter.read());
  ASSERT_TRUE(joules.has_value());
  EXPECT_DOUBLE_EQ(*joules, 1.75);
}

TEST_F(Energy, ACounterMayStartAgain) {
  set("intel-rapl:0", 262'142'000'000);
  const EnergyMeter meter(folder_.path());
  const auto before = meter.read();
  set("intel-rapl:0", 500'000);
  EXPECT_DOUBLE_EQ(meter.joules(before, meter.read()).value(), 1.5);
}

TEST_F(Energy, NothingWhereNothingCanBeRead) {
  const EnergyMeter none(folder_.path("missing"));
  EXPECT_TRUE(none.read().empty());
  EXPECT_FALSE(none.joules(none.read(), none.read()).has_value());
  const EnergyMeter meter(folder_.path());
  const auto before = meter.read();
  ASSERT_EQ(before.size(), 2u);
  write(fs::path(folder_.path()) / "intel-rapl:1" / "energy_uj",
        "");  // as when the permission goes away
  EXPECT_FALSE(meter.joules(before, meter.read()).has_value());
}

}  // namespace
}  // namespace adder
