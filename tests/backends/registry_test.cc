// Which backend and which instruction set runs is a promise, not a hope.

#include "backends/registry.h"

#include <functional>

#include "core/error.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

TEST(Registry, NamesAreUniqueAndMakeThemselves) {
  const auto names = available_backends();
  ASSERT_FALSE(names.empty());
  EXPECT_NE(std::find(names.begin(), names.end(), "ref"), names.end());
  for (const std::string& name : names) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
    if (name == "xla") continue;  // needs a plugin; tests/xla makes it
    if (name != "cuda" || has_gpu()) {
      EXPECT_EQ(make_backend(name, 1)->name(), name);
    }
  }
}

TEST(Registry, UnknownDevicesAreRefusedWithTheChoice) {
  for (const char* device : {"", "gpu", "REF", "ref ", "cpux", "gpu:1"}) {
    try {
      make_backend(device);
      ADD_FAILURE() << "accepted '" << device << "'";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kBadInput);
      const std::string message = e.what();
      EXPECT_NE(message.find(fmt::format("got '{}'", device)), std::string::npos) << message;
      for (const std::string& name : available_backends())
        EXPECT_NE(message.find(name), std::string::npos) << message;
    }
  }
}

TEST(Registry, OnlyGpusAreNumbered) {
  EXPECT_EQ(parse_device("cuda:12").index, 12);
  EXPECT_EQ(parse_device("cuda").index, 0);
  for (const char* device : {"cpu:0", "ref:1", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda: 1"})
    EXPECT_THROW(parse_device(device), Error) << device;
}

TEST(Registry, WhatIsBehindTheColonOfXlaIsAPlugin) {
  EXPECT_EQ(parse_device("xla").plugin, "");
  EXPECT_EQ(parse_device("xla:cpu").plugin, "cpu");
  EXPECT_EQ(parse_device("xla:/a:b/plugin.so").plugin, "/a:b/plugin.so");
  EXPECT_THROW(parse_device("xla:"), Error);
  EXPECT_EQ(make_backend("xla:interpreter")->name(), "xla");
  for (const auto& refused :
       {std::function<void()>([] { make_machine_probe("xla:/no/plugin.so"); }),
        std::function<void()>([] { make_scan_ladder("xla:cpu"); })}) {
    try {
      refused();
      ADD_FAILURE() << "made one";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
    }
  }
}

// No driver, no such device, or a build without CUDA: an error that says so, and nothing else
// breaks.
TEST(Registry, AGpuThatIsNotThereIsUnsupported) {
  if (has_gpu()) GTEST_SKIP() << "there is one";
  try {
    make_backend("cuda:0");
    ADD_FAILURE() << "made one";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
    EXPECT_NE(std::string(e.what()).find("cuda"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(make_backend("cpu"));
}

class Targets : public BackendTest {};
ADDER_TEST_ALL_TARGETS(Targets);

TEST_P(Targets, TheForcedInstructionSetIsTheOneThatRuns) {
  const std::string description = backend_->description();
  EXPECT_EQ(description.find(GetParam().backend), 0u) << description;
  // The name as a word of its own: "SSE4" is not "SSSE3", and "AVX3" is not "AVX3_DL".
  if (!GetParam().isa.empty()) {
    EXPECT_NE(description.find(" " + GetParam().isa + ","), std::string::npos) << description;
  }
}

TEST(Registry, ImpossibleInstructionSetsAreRefused) {
  for (const std::string& name : available_backends()) {
    if (name != "cpu") continue;
    setenv("ADDER_FORCE_ISA", "AVX9000", 1);
    EXPECT_THROW(make_backend(name), Error);
    unsetenv("ADDER_FORCE_ISA");
    EXPECT_NO_THROW(make_backend(name));
  }
}

}  // namespace
}  // namespace adder::testing
