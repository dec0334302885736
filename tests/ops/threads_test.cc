// Every drop-in operation in many threads at once, on a pool whose size changes meanwhile: each
// call must have the bits of one alone. Also what TSan and ASan see of these operations; values are
// held against float64 in python/tests/test_ops_*.py.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ops/causal_conv1d.h"
#include "ops/mamba_chunk_scan.h"
#include "ops/mamba_inner.h"
#include "ops/norm.h"
#include "ops/runtime.h"
#include "ops/selective_scan.h"
#include "ops/selective_state_update.h"
#include "ops/temporary.h"
#include "testing/inputs.h"

namespace adder::ops {
namespace {

using testing::Rng;

// Seeded operands of one call, and its results in one vector.
class Operands {
 public:
  ArrayView normal(std::initializer_list<int64_t> shape, float scale = 1.0f) {
    return fill(shape, [&] { return scale * rng_.normal(); });
  }
  ArrayView decay(std::initializer_list<int64_t> shape) {
    return fill(shape, [&] { return rng_.uniform(-2.0f, -0.01f); });
  }
  // An array that is written; its contents are part of results().
  ArrayView out(std::initializer_list<int64_t> shape) { return written(normal(shape)); }
  ArrayView written(const ArrayView& view) {
    results_.push_back(view);
    return view;
  }

  std::vector<float> results() const {
    std::vector<float> all;
    for (const ArrayView& x : results_) {
      const auto* data = reinterpret_cast<const float*>(x.data);
      all.insert(all.end(), data, data + x.size());
    }
    return all;
  }

 private:
  template <typename Next>
  ArrayView fill(std::initializer_list<int64_t> shape, Next next) {
    arrays_.push_back(std::make_unique<Temporary>(shape));
    const ArrayView view = arrays_.back()->view();
    for (int64_t i = 0; i < view.size(); ++i) arrays_.back()->data()[i] = next();
    return view;
  }

  Rng rng_{11};
  std::vector<std::unique_ptr<Temporary>> arrays_;
  std::vector<ArrayView> results_;
};

// Large enough for the pool.
void scan(Operands& o) {
  SelectiveScanFnArgs a;
  a.u = o.normal({2, 90, 140});
  a.delta = o.normal({2, 90, 140});
  a.z = o.normal({2, 90, 140});
  a.A = o.decay({90, 5});
  a.B = o.normal({2, 2, 5, 140});
  a.C = o.normal({2, 3, 5, 140});
  a.D = o.normal({90});
  a.delta_bias = o.normal({90});
  a.delta_softplus = true;
  a.out = o.out({2, 90, 140});
  a.last_state = o.out({2, 90, 5});
  selective_scan_fn(a);
}

// Some A above 0, in some channels.
void growing_scan(Operands& o) {
  SelectiveScanFnArgs a;
  a.u = o.normal({2, 300, 40});
  a.delta = o.normal({2, 300, 40}, 0.1f);
  a.A = o.decay({300, 5});
  for (int64_t i : {3, 700, 1490}) reinterpret_cast<float*>(a.A.data)[i] = 0.01f;
  a.B = o.normal({2, 5, 40});
  a.C = o.normal({2, 5, 40});
  a.delta_softplus = true;
  a.out = o.out({2, 300, 40});
  selective_scan_fn(a);
}

void complex_scan(Operands& o) {
  SelectiveScanFnArgs a;
  a.u = o.normal({1, 12, 70});
  a.delta = o.normal({1, 12, 70});
  a.A = o.decay({12, 2 * 3});
  a.A.shape[1] = 3;
  a.A.is_complex = true;
  a.A.stride[1] = 8;
  a.B = o.normal({1, 1, 3, 140});
  a.C = o.normal({1, 1, 3, 140});
  a.delta_softplus = true;
  a.out = o.out({1, 12, 70});
  selective_scan_fn(a);
}

void update(Operands& o) {
  SelectiveStateUpdateArgs a;
  a.state = o.written(o.normal({5, 6, 33, 17}));
  a.x = o.normal({5, 6, 33});
  a.dt = o.normal({5, 6, 33});
  a.A = o.decay({6, 33, 17});
  a.B = o.normal({5, 2, 17});
  a.C = o.normal({5, 2, 17});
  a.dt_softplus = true;
  a.out = o.out({5, 6, 33});
  selective_state_update(a);
}

void update_tied(Operands& o) {
  SelectiveStateUpdateArgs a;
  a.state = o.written(o.normal({5, 6, 33, 17}));
  a.x = o.normal({5, 6, 33});
  a.dt = o.normal({5, 6, 1});
  a.dt.shape[2] = 33;
  a.dt.stride[2] = 0;
  a.A = o.decay({6, 1, 1});
  a.A.shape[1] = 33;
  a.A.shape[2] = 17;
  a.A.stride[1] = a.A.stride[2] = 0;
  a.B = o.normal({5, 2, 17});
  a.C = o.normal({5, 2, 17});
  a.dt_softplus = true;
  a.out = o.out({5, 6, 33});
  selective_state_update(a);
}

void ssd(Operands& o) {
  static const int32_t cu_seqlens[] = {0, 10, 10, 75, 139};
  MambaChunkScanArgs a;
  a.x = o.normal({1, 150, 6, 20});
  a.dt = o.normal({1, 150, 6});
  a.A = o.decay({6});
  a.B = o.normal({1, 150, 2, 9});
  a.C = o.normal({1, 150, 2, 9});
  a.D = o.normal({6, 20});
  a.z = o.normal({1, 150, 6, 20});
  a.initial_states = o.normal({4, 6, 20, 9});
  a.cu_seqlens = {const_cast<int32_t*>(cu_seqlens), DType::kI32, {5}};
  a.dt_softplus = true;
  a.out = o.out({1, 150, 6, 20});
  a.final_states = o.out({1, 6, 20, 9});
  a.varlen_states = o.out({4, 6, 20, 9});
  mamba_chunk_scan_combined(a);
}

void growing_ssd(Operands& o) {  // positive A: the plain loop
  MambaChunkScanArgs a;
  a.x = o.normal({2, 40, 4, 20});
  a.dt = o.normal({2, 40, 4}, 0.1f);
  a.A = o.normal({4}, 0.1f);
  a.B = o.normal({2, 40, 1, 9});
  a.C = o.normal({2, 40, 1, 9});
  a.out = o.out({2, 40, 4, 20});
  mamba_chunk_scan_combined(a);
}

void conv(Operands& o, int64_t width) {
  CausalConv1dFnArgs a;
  a.x = o.normal({2, 300, 141});
  a.weight = o.normal({300, width});
  a.bias = o.normal({300});
  a.initial_states = o.normal({2, 300, width - 1});
  a.silu = true;
  a.out = o.out({2, 300, 141});
  a.final_states = o.out({2, 300, width - 1});
  causal_conv1d_fn(a);
}

void conv_update(Operands& o) {
  CausalConv1dUpdateArgs a;
  a.x = o.normal({7, 300, 2});
  a.conv_state = o.written(o.normal({7, 300, 5}));
  a.weight = o.normal({300, 4});
  a.out = o.out({7, 300, 2});
  causal_conv1d_update(a);
}

void gated_norm(Operands& o, bool rms) {
  NormArgs a;
  a.x = o.normal({3, 70, 96});
  a.z = o.normal({3, 70, 96});
  a.weight = o.normal({96});
  a.group_size = 32;
  a.norm_before_gate = false;
  a.rms = rms;
  a.out = o.out({3, 70, 96});
  norm("norm", a);
}

void residual_norm(Operands& o) {
  NormArgs a;
  a.x = o.normal({3, 70, 96});
  a.residual = o.normal({3, 70, 96});
  a.rowscale = o.normal({3, 70});
  a.weight = o.normal({96});
  a.bias = o.normal({96});
  a.weight1 = o.normal({96});
  a.out = o.out({3, 70, 96});
  a.out1 = o.out({3, 70, 96});
  a.residual_out = o.out({3, 70, 96});
  norm("norm", a);
}

void inner(Operands& o) {
  MambaInnerArgs a;
  a.xz = o.normal({2, 2 * 70, 90});
  a.conv1d_weight = o.normal({70, 1, 4});
  a.x_proj_weight = o.normal({5 + 2 * 6, 70}, 0.1f);
  a.delta_proj_weight = o.normal({70, 5}, 0.4f);
  a.out_proj_weight = o.normal({150, 70}, 0.1f);
  a.A = o.decay({70, 6});
  a.b_rms_weight = o.normal({6});
  a.dt_rms_weight = o.normal({70});
  a.out = o.out({2, 90, 150});
  mamba_inner_fn(a);
}

void split(Operands& o) {
  MambaSplitConv1dScanArgs a;
  a.zxbcdt = o.normal({2, 90, 2 * 3 + 2 * 64 + 2 * 2 * 7 + 4});
  a.conv1d_weight = o.normal({64 + 2 * 2 * 7, 4});
  a.dt_bias = o.normal({4});
  a.A = o.decay({4});
  a.D = o.normal({4, 16});
  a.rmsnorm_weight = o.normal({64});
  a.outproj_weight = o.normal({40, 67}, 0.1f);
  a.ngroups = 2;
  a.out = o.out({2, 90, 40});
  a.final_states = o.out({2, 4, 16, 7});
  mamba_split_conv1d_scan_combined(a);
}

struct Case {
  const char* name;
  std::function<void(Operands&)> run;
};

class EveryOperation : public ::testing::TestWithParam<Case> {};

TEST_P(EveryOperation, HasItsBitsInManyThreadsAtOnce) {
  set_num_threads(1);
  Operands alone;
  GetParam().run(alone);
  const std::vector<float> want = alone.results();
  for (float v : want) ASSERT_EQ(v, v);  // no NaN, which no comparison below would accept
  set_num_threads(3);
  std::vector<std::vector<float>> got(4);
  std::vector<std::thread> threads;
  for (std::vector<float>& result : got) {
    threads.emplace_back([&result] {
      for (int round = 0; round < 2; ++round) {
        Operands own;
        GetParam().run(own);
        result = own.results();
      }
    });
  }
  threads.emplace_back([] { set_num_threads(2); });
  for (std::thread& t : threads) t.join();
  set_num_threads(0);
  for (const std::vector<float>& result : got) EXPECT_TRUE(result == want);
}

INSTANTIATE_TEST_SUITE_P(
    Ops, EveryOperation,
    ::testing::Values(
        Case{"scan", scan}, Case{"growing_scan", growing_scan}, Case{"complex_scan", complex_scan},
        Case{"update", update}, Case{"update_tied", update_tied}, Case{"ssd", ssd},
        Case{"growing_ssd", growing_ssd}, Case{"conv1", [](Operands& o) { conv(o, 1); }},
        Case{"conv4", [](Operands& o) { conv(o, 4); }},
        Case{"conv7", [](Operands& o) { conv(o, 7); }}, Case{"conv_update", conv_update},
        Case{"rms_norm", [](Operands& o) { gated_norm(o, true); }},
        Case{"layer_norm", [](Operands& o) { gated_norm(o, false); }},
        Case{"residual_norm", residual_norm}, Case{"inner", inner}, Case{"split", split}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace adder::ops
