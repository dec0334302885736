#include "model/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "backends/registry.h"
#include "io/io_testing.h"
#include "testing/compare.h"
#include "testing/inputs.h"

namespace adder {
namespace {

using namespace adder::testing;

ModelConfig small_config(MixerKind mixer) {
  ModelConfig c;
  c.mixer = mixer;
  c.n_layer = 3;
  c.d_inner = 12;
  c.d_state = 5;
  c.d_conv = 4;
  c.n_heads = 3;
  c.headdim = 4;
  c.n_groups = 1;
  return c;
}

class StatePoolTest : public ::testing::TestWithParam<MixerKind> {
 protected:
  static constexpr int32_t kSlots = 4;
  std::unique_ptr<Backend> backend_ = make_backend("cpu", 1);
  ModelConfig config_ = small_config(GetParam());
  StatePool pool_{config_, *backend_, kSlots};

  std::vector<float> values(const StateHandle& handle) {
    std::vector<float> out(pool_.snapshot_bytes() / sizeof(float));
    pool_.snapshot(handle, std::as_writable_bytes(std::span(out)));
    return out;
  }
  void fill(StateHandle& handle, const std::vector<float>& with) {
    pool_.restore(handle, std::as_bytes(std::span(with)));
  }
  std::vector<float> random_state(uint64_t seed) {
    return Rng(seed).normals(static_cast<int64_t>(pool_.snapshot_bytes() / sizeof(float)));
  }
};
INSTANTIATE_TEST_SUITE_P(Mixer, StatePoolTest,
                         ::testing::Values(MixerKind::kMamba1, MixerKind::kMamba2),
                         [](const auto& test) {
                           return test.param == MixerKind::kMamba1 ? "Mamba1" : "Mamba2";
                         });

TEST_P(StatePoolTest, HoldsConvAndSsmStateOfAllLayers) {
  EXPECT_EQ(static_cast<int64_t>(pool_.snapshot_bytes()), config_.state_bytes());
  EXPECT_EQ(pool_.slots(), kSlots);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pool_.conv_state(i).dim(0), kSlots);
    EXPECT_EQ(pool_.conv_state(i).dim(2), config_.conv_channels());
    EXPECT_EQ(pool_.ssm_state(i).size(), kSlots * 12 * 5);
  }
}

TEST_P(StatePoolTest, AcquiredSlotsAreZeroWhateverLayThere) {
  const std::vector<float> bad(pool_.snapshot_bytes() / sizeof(float),
                               std::numeric_limits<float>::quiet_NaN());
  for (int round = 0; round < 3; ++round) {
    std::vector<StateHandle> all;
    for (int32_t i = 0; i < kSlots; ++i) {
      all.push_back(pool_.acquire());
      for (const float v : values(all.back())) ASSERT_EQ(std::bit_cast<uint32_t>(v), 0u);
      fill(all.back(), bad);
    }
  }
}

TEST_P(StatePoolTest, SlotsAreDistinctAndComeBackInAnyOrder) {
  Rng rng(1);
  std::vector<StateHandle> held;
  for (int step = 0; step < 300; ++step) {
    if (held.size() < kSlots && (held.empty() || rng.below(2) == 0)) {
      held.push_back(pool_.acquire());
    } else {
      held.erase(held.begin() + rng.below(static_cast<int64_t>(held.size())));
    }
    std::set<int32_t> slots;
    for (const StateHandle& h : held) {
      EXPECT_TRUE(h.slot() >= 0 && h.slot() < kSlots);
      EXPECT_TRUE(slots.insert(h.slot()).second) << "slot " << h.slot() << " was given twice";
    }
    ASSERT_EQ(pool_.free_slots(), kSlots - static_cast<int32_t>(held.size()));
  }
}

TEST_P(StatePoolTest, ExhaustionIsAnErrorAndPasses) {
  std::vector<StateHandle> all;
  for (int32_t i = 0; i < kSlots; ++i) all.push_back(pool_.acquire());
  expect_bad_input([&] { pool_.acquire(); }, "state pool: all 4 slots are taken");
  StateHandle copy = all[0];
  const int32_t slot = copy.slot();
  expect_bad_input([&] { pool_.make_unique(copy); }, "all 4 slots are taken");
  EXPECT_EQ(copy.slot(), slot);
  EXPECT_EQ(copy.handles(), 2);
  expect_bad_input([&] { fill(copy, random_state(1)); }, "all 4 slots are taken");
  for (const float v : values(all[0])) ASSERT_EQ(v, 0) << "a shared slot was written";
  all.pop_back();
  pool_.make_unique(copy);
  EXPECT_NE(copy.slot(), slot);
}

TEST_P(StatePoolTest, CopiesShareUntilOneIsWritten) {
  StateHandle a = pool_.acquire();
  const auto first = random_state(2), second = random_state(3);
  fill(a, first);
  StateHandle b = a, c = b;
  EXPECT_EQ(pool_.free_slots(), kSlots - 1);
  EXPECT_EQ(a.handles(), 3);
  EXPECT_EQ(b.slot(), a.slot());
  pool_.make_unique(b);
  EXPECT_EQ(pool_.free_slots(), kSlots - 2);
  EXPECT_TRUE(same_bits(values(b), first));
  fill(b, second);
  EXPECT_TRUE(same_bits(values(a), first));
  EXPECT_TRUE(same_bits(values(c), first));
  EXPECT_TRUE(same_bits(values(b), second));
  // The last owner keeps the slot: nothing is copied, nothing is taken.
  c = {};
  const int32_t slot = a.slot();
  pool_.make_unique(a);
  EXPECT_EQ(a.slot(), slot);
  EXPECT_EQ(pool_.free_slots(), kSlots - 2);
  a = {};
  b = {};
  EXPECT_EQ(pool_.free_slots(), kSlots);
  EXPECT_EQ(a.slot(), -1);
  EXPECT_EQ(a.handles(), 0);
}

TEST_P(StatePoolTest, SnapshotsComeBackInAnySlotAndTouchNoOther) {
  std::vector<StateHandle> all;
  std::vector<std::vector<float>> want;
  for (int32_t i = 0; i < kSlots; ++i) {
    all.push_back(pool_.acquire());
    want.push_back(random_state(10 + static_cast<uint64_t>(i)));
    want.back()[0] = std::bit_cast<float>(0x7fc12345u);  // a NaN's payload is bits like any other
    fill(all.back(), want.back());
  }
  std::rotate(want.begin(), want.begin() + 1, want.end());
  for (size_t i = 0; i < kSlots; ++i) {
    fill(all[i], want[i]);
    EXPECT_TRUE(same_bits(values(all[i]), want[i]));
  }
  for (size_t i = 0; i < kSlots; ++i) EXPECT_TRUE(same_bits(values(all[i]), want[i]));
}

TEST_P(StatePoolTest, WrongSizesAndEmptyHandlesAreRefused) {
  StateHandle a = pool_.acquire();
  std::vector<std::byte> bytes(pool_.snapshot_bytes() - 4);
  expect_bad_input([&] { pool_.restore(a, bytes); }, "restore: expected");
  expect_bad_input([&] { pool_.snapshot(a, bytes); }, "snapshot: expected");
  bytes.resize(pool_.snapshot_bytes());
  StateHandle empty;
  expect_bad_input([&] { pool_.snapshot(empty, bytes); }, "snapshot: expected a handle");
  expect_bad_input([&] { pool_.restore(empty, bytes); }, "got an empty one");
  expect_bad_input([&] { pool_.make_unique(empty); }, "got an empty one");
  EXPECT_EQ(pool_.free_slots(), kSlots - 1);
  expect_bad_input([&] { StatePool(config_, *backend_, 0); }, "expected at least 1 slot, got 0");
}

}  // namespace
}  // namespace adder
