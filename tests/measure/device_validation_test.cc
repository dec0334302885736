// Devices that compute the same pass, and what is beyond the bounds is seen.
#include "measure/device_validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "engine/synthetic.h"

namespace adder::testing {
namespace {

std::shared_ptr<const Checkpoint> tiny_model(MixerKind mixer) {
  const SyntheticShape shape = {"tiny", mixer, 3, 64, 16, 96};
  return std::make_shared<const Checkpoint>(make_synthetic(shape, DType::kF32));
}

ValidationOptions usual_validation() {
  ValidationOptions o;
  o.devices = {"ref", "cpu"};
  o.tokens.resize(100);  // more than a chunk of the Mamba-2 scan
  std::iota(o.tokens.begin(), o.tokens.end(), -3);
  for (int32_t& t : o.tokens) t = (t * 7 + 50) % 90;
  o.threads = 2;
  return o;
}

class Validation : public ::testing::TestWithParam<MixerKind> {};
INSTANTIATE_TEST_SUITE_P(Mixers, Validation,
                         ::testing::Values(MixerKind::kMamba1, MixerKind::kMamba2),
                         [](const auto& test) {
                           return test.param == MixerKind::kMamba1 ? "Mamba1" : "Mamba2";
                         });

TEST_P(Validation, TheVectorBackendIsTheReference) {
  const auto results = validate_devices(tiny_model(GetParam()), usual_validation());
  ASSERT_EQ(results.size(), 2u);
  for (const DeviceValidation& r : results) {
    EXPECT_TRUE(r.passed) << r.device << " " << r.logits.relative << " " << r.split.relative << " "
                          << r.cached.relative;
    EXPECT_EQ(r.layers.size(), 3u);
    EXPECT_FALSE(r.first_other_token);
  }
  EXPECT_EQ(results[0].logits.absolute, 0);
  EXPECT_GT(results[1].logits.absolute, 0)
      << "other sums, so the same bits would be a mistake here";
  EXPECT_GT(results[1].layers[2], 0);
}

TEST_P(Validation, WhatIsBeyondTheBoundsFails) {
  ValidationOptions o = usual_validation();
  o.bounds.relative = 1e-12;
  const auto results = validate_devices(tiny_model(GetParam()), o);
  EXPECT_FALSE(results[1].passed);
}

TEST(ValidationDifference, IsOfNormsAndOfTheLargest) {
  const std::vector<float> want = {3, 0, 4}, got = {3, 1, 4};
  EXPECT_DOUBLE_EQ(difference(got, want).relative, 0.2);
  EXPECT_DOUBLE_EQ(difference(got, want).absolute, 1);
  EXPECT_EQ(difference(want, want).relative, 0);
  const std::vector<float> nan = {3, 0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_FALSE(difference(nan, want).within({1e30, 1e30}));
  EXPECT_FALSE(difference(nan, nan).within({1e30, 1e30}));
  EXPECT_TRUE(std::isinf(difference(got, std::vector<float>(3)).relative)) << "nothing was wanted";
}

TEST(ValidationOptionsTest, AreChecked) {
  const auto model = tiny_model(MixerKind::kMamba1);
  ValidationOptions none = usual_validation();
  none.devices.clear();
  EXPECT_THROW(validate_devices(model, none), Error);
  ValidationOptions unknown = usual_validation();
  unknown.devices.push_back("gpu");
  EXPECT_THROW(validate_devices(model, unknown), Error);
  ValidationOptions shorter = usual_validation();
  shorter.tokens.resize(1);
  EXPECT_THROW(validate_devices(model, shorter), Error);
  ValidationOptions outside = usual_validation();
  outside.tokens.back() = 1000;
  EXPECT_THROW(validate_devices(model, outside), Error);
}

}  // namespace
}  // namespace adder::testing
