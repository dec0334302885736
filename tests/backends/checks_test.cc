// Every operation refuses what its contract excludes, naming the operation and the field.

#include "kernels/checks.h"

#include <cmath>
#include <functional>

#include "core/error.h"
#include "testing/dense.h"
#include "testing/targets.h"

namespace adder::testing {
namespace {

float memory[4096];

Tensor f32(std::initializer_list<int64_t> dims) {
  return Tensor(memory, DType::kF32, dims);
}
Tensor out32(std::initializer_list<int64_t> dims) {
  return Tensor(memory + 2048, DType::kF32, dims);
}
Tensor transposed(Tensor t) {
  std::swap(t.shape[t.rank - 1], t.shape[t.rank - 2]);
  std::swap(t.stride[t.rank - 1], t.stride[t.rank - 2]);
  return t;
}
Tensor as(Tensor t, DType dtype) {
  t.dtype = dtype;
  return t;
}

// Runs `check` on args that one change has spoilt.
template <typename Args>
void expect_refused(std::string_view op, std::string_view field, Args args,
                    const std::function<void(Args&)>& spoil) {
  check(args);  // fine before
  spoil(args);
  try {
    check(args);
    ADD_FAILURE() << op << ": accepted a bad " << field;
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_EQ(e.code(), ErrorCode::kBadInput) << message;
    EXPECT_EQ(message.find(fmt::format("{}: {}", op, field)), 0u) << message;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// Shape, dtype, inner stride and absence of one operand, square ones included.
template <typename Args>
void expect_operand_checked(std::string_view op, std::string_view field, const Args& args,
                            Tensor Args::*operand, bool optional = false) {
  expect_refused<Args>(op, field, args, [&](Args& a) { (a.*operand).shape[0] += 1; });
  expect_refused<Args>(op, field, args, [&](Args& a) { (a.*operand).rank -= 1; });
  expect_refused<Args>(op, field, args, [&](Args& a) { (a.*operand).dtype = DType::kI32; });
  expect_refused<Args>(op, field, args, [&](Args& a) {
    (a.*operand).stride[static_cast<size_t>((a.*operand).rank - 1)] = 2;
  });
  if (!optional) {
    expect_refused<Args>(op, field, args, [&](Args& a) { (a.*operand).data = nullptr; });
  } else {
    Args without = args;
    without.*operand = Tensor();
    EXPECT_NO_THROW(check(without)) << op << ": " << field;
  }
}

constexpr int32_t kStarts[] = {0, 2, 5};
constexpr int32_t kSlots[] = {3, 1};

template <typename Args>
void expect_batch_checked(std::string_view op, const Args& args) {
  const auto refused = [&](std::string_view field, std::vector<int32_t> starts,
                           std::vector<int32_t> slots) {
    expect_refused<Args>(op, field, args, [&](Args& a) { a.batch = {starts, slots}; });
  };
  refused("seq_start", {0, 5}, {3, 1});
  refused("seq_start", {}, {3, 1});
  refused("seq_start[0]", {1, 2, 5}, {3, 1});
  refused("seq_start[1]", {0, -1, 5}, {3, 1});
  refused("seq_start[2]", {0, 6, 5}, {3, 1});
  refused("seq_start", {0, 2, 4}, {3, 1});
  refused("seq_start", {0, 2, 6}, {3, 1});
  refused("state_slot", {0, 2, 5}, {4, 1});
  refused("state_slot", {0, 2, 5}, {-2, 1});
  refused("state_slot", {0, 2, 5}, {1, 1});
  Args padded = args;
  const int32_t none[] = {-1, -1};
  padded.batch = {kStarts, none};
  EXPECT_NO_THROW(check(padded)) << op;
}

TEST(Checks, Embedding) {
  const int32_t ids[] = {0, 9};
  EmbeddingArgs a;
  a.weight = f32({10, 7});
  a.ids = ids;
  a.out = out32({2, 7});
  expect_operand_checked("embedding", "out", a, &EmbeddingArgs::out);
  const auto refused = [&](std::string_view field, auto&& spoil) {
    expect_refused<EmbeddingArgs>("embedding", field, a, spoil);
  };
  refused("weight", [](auto& s) { s.weight.dtype = DType::kF64; });
  refused("weight", [](auto& s) { s.weight.dtype = DType::kQ4_0; });
  refused("weight", [](auto& s) { s.weight.data = nullptr; });
  refused("weight", [](auto& s) { s.weight.rank = 1; });
  for (int32_t bad : {-1, 10, 1 << 30}) {
    const int32_t wrong[] = {0, bad};
    refused("ids[1]", [&](auto& s) { s.ids = wrong; });
  }
}

TEST(Checks, Matmul) {
  MatmulArgs a;
  a.x = f32({3, 7}), a.weight = f32({5, 7}), a.bias = f32({5}), a.out = out32({3, 5});
  expect_operand_checked("matmul", "out", a, &MatmulArgs::out);
  expect_operand_checked("matmul", "bias", a, &MatmulArgs::bias, true);
  const auto refused = [&](std::string_view field, auto&& spoil) {
    expect_refused<MatmulArgs>("matmul", field, a, spoil);
  };
  refused("x", [](auto& s) { s.x = transposed(f32({7, 3})); });
  refused("x", [](auto& s) { s.x = as(s.x, DType::kBF16); });
  refused("weight", [](auto& s) { s.weight = transposed(f32({7, 5})); });
  refused("weight", [](auto& s) { s.weight = f32({5, 8}); });
  refused("weight", [](auto& s) { s.weight = as(s.weight, DType::kI8); });
  refused("out", [](auto& s) { s.x = f32({3, 7}), s.out = f32({3, 5}); });
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    a.weight.dtype = dtype;
    EXPECT_NO_THROW(check(a));
  }
  refused("weight", [](auto& s) { s.weight.dtype = DType::kQ8_0; });  // rows of 7
  for (DType dtype : kBlockFormats) {
    const int64_t block = block_shape(dtype).elements;
    a.x = f32({2, 2 * block}), a.weight = as(f32({3, 2 * block}), dtype), a.bias = f32({3});
    a.out = out32({2, 3});
    EXPECT_NO_THROW(check(a));
    refused("weight", [](auto& s) {
      s.x = f32({2, 48}), s.weight = as(f32({3, 48}), s.weight.dtype);
    });
    refused("weight", [](auto& s) { s.weight.stride[0] += 16; });
    refused("x", [](auto& s) { s.x.dtype = s.weight.dtype; });
  }
}

TEST(Checks, Norms) {
  RmsNormArgs a;
  a.x = f32({3, 7}), a.residual = f32({3, 7}), a.weight = f32({7}), a.out = out32({3, 7});
  expect_operand_checked("rms_norm", "residual", a, &RmsNormArgs::residual, true);
  expect_operand_checked("rms_norm", "weight", a, &RmsNormArgs::weight, true);
  expect_operand_checked("rms_norm", "out", a, &RmsNormArgs::out);
  for (float eps : {-1.0f, NAN, INFINITY})
    expect_refused<RmsNormArgs>("rms_norm", "eps", a, [&](auto& s) { s.eps = eps; });

  GatedRmsNormArgs g;
  g.x = f32({3, 6}), g.z = f32({3, 6}), g.weight = f32({6}), g.out = out32({3, 6});
  expect_operand_checked("gated_rms_norm", "z", g, &GatedRmsNormArgs::z);
  expect_operand_checked("gated_rms_norm", "weight", g, &GatedRmsNormArgs::weight);
  expect_operand_checked("gated_rms_norm", "out", g, &GatedRmsNormArgs::out);
  for (int64_t groups : {0, -1, 4, 7})
    expect_refused<GatedRmsNormArgs>("gated_rms_norm", "groups", g,
                                     [&](auto& s) { s.groups = groups; });
}

TEST(Checks, CausalConv1d) {
  using Args = CausalConv1dArgs;
  constexpr std::string_view op = "causal_conv1d";
  Args a;
  a.x = f32({5, 7}), a.weight = f32({4, 7}), a.bias = f32({7});
  a.conv_state = f32({4, 3, 7}), a.out = out32({5, 7});
  a.batch = {kStarts, kSlots};
  expect_operand_checked(op, "bias", a, &Args::bias, true);
  expect_operand_checked(op, "out", a, &Args::out);
  expect_refused<Args>(op, "weight", a, [](auto& s) { s.weight = f32({1, 7}); });
  expect_refused<Args>(op, "weight", a, [](auto& s) { s.weight = f32({4, 6}); });
  expect_refused<Args>(op, "conv_state", a, [](auto& s) { s.conv_state = f32({4, 4, 7}); });
  expect_refused<Args>(op, "conv_state", a, [](auto& s) { s.conv_state.rank = 2; });
  expect_refused<Args>(op, "out", a, [](auto& s) { s.out = s.x; });
  expect_batch_checked(op, a);
}

TEST(Checks, SelectiveScan) {
  using Args = SelectiveScanArgs;
  constexpr std::string_view op = "selective_scan";
  Args a;
  a.u = a.delta = a.z = f32({5, 6}), a.A_log2e = f32({3, 6}), a.B = a.C = f32({5, 2, 3});
  a.D = a.delta_bias = f32({6}), a.ssm_state = f32({4, 3, 6}), a.out = out32({5, 6});
  a.batch = {kStarts, kSlots};
  expect_operand_checked(op, "delta", a, &Args::delta);
  expect_operand_checked(op, "A_log2e", a, &Args::A_log2e);
  expect_operand_checked(op, "C", a, &Args::C);
  expect_operand_checked(op, "D", a, &Args::D, true);
  expect_operand_checked(op, "z", a, &Args::z, true);
  expect_operand_checked(op, "delta_bias", a, &Args::delta_bias, true);
  expect_operand_checked(op, "out", a, &Args::out);
  expect_refused<Args>(op, "u", a, [](auto& s) { s.u.dtype = DType::kF16; });
  expect_refused<Args>(op, "ssm_state", a, [](auto& s) { s.ssm_state = f32({4, 6, 3}); });
  expect_refused<Args>(op, "n_groups", a, [](auto& s) { s.B = s.C = f32({5, 4, 3}); });
  Args in_place = a;
  in_place.out = in_place.u;
  EXPECT_NO_THROW(check(in_place));
  expect_batch_checked(op, a);
}

TEST(Checks, SsdScan) {
  using Args = SsdScanArgs;
  constexpr std::string_view op = "ssd_scan";
  Args a;
  a.x = a.z = f32({5, 4, 2}), a.dt = f32({5, 4}), a.A_log2e = a.D = a.dt_bias = f32({4});
  a.B = a.C = f32({5, 2, 3}), a.ssm_state = f32({4, 4, 2, 3}), a.out = out32({5, 4, 2});
  a.batch = {kStarts, kSlots};
  expect_operand_checked(op, "dt", a, &Args::dt);
  expect_operand_checked(op, "A_log2e", a, &Args::A_log2e);
  expect_operand_checked(op, "C", a, &Args::C);
  expect_operand_checked(op, "D", a, &Args::D, true);
  expect_operand_checked(op, "z", a, &Args::z, true);
  expect_operand_checked(op, "dt_bias", a, &Args::dt_bias, true);
  expect_operand_checked(op, "out", a, &Args::out);
  expect_refused<Args>(op, "D", a, [](auto& s) { s.D = f32({4, 3}); });
  expect_refused<Args>(op, "ssm_state", a, [](auto& s) { s.ssm_state = f32({4, 4, 3, 2}); });
  expect_refused<Args>(op, "n_groups", a, [](auto& s) { s.B = s.C = f32({5, 3, 3}); });
  expect_refused<Args>(op, "out", a, [](auto& s) { s.out = s.x; });
  expect_refused<Args>(op, "dt_min", a, [](auto& s) { s.dt_min = 2, s.dt_max = 1; });
  expect_refused<Args>(op, "dt_min", a, [](auto& s) { s.dt_max = NAN; });
  Args wide = a;
  wide.D = f32({4, 2});
  EXPECT_NO_THROW(check(wide));
  expect_batch_checked(op, a);
}

TEST(Checks, Sample) {
  SampleParams params[2];
  int32_t out[2];
  SampleArgs a;
  a.logits = f32({2, 10}), a.vocab_limit = 9, a.params = params, a.out = out;
  const auto refused = [&](std::string_view field, auto&& spoil) {
    expect_refused<SampleArgs>("sample", field, a, spoil);
  };
  refused("logits", [](auto& s) { s.logits.dtype = DType::kF16; });
  refused("vocab_limit", [](auto& s) { s.vocab_limit = 11; });
  refused("vocab_limit", [](auto& s) { s.vocab_limit = 0; });
  refused("params", [](auto& s) { s.params = s.params.first(1); });
  refused("out", [](auto& s) { s.out = s.out.first(1); });
  const int32_t ids[] = {3, 10};
  const std::pair<std::string_view, SampleParams> bad[] = {
      {"temperature", {.temperature = -1}},
      {"temperature", {.temperature = NAN}},
      {"temperature", {.temperature = INFINITY}},
      {"top_k", {.top_k = -1}},
      {"top_p", {.top_p = -0.1f}},
      {"top_p", {.top_p = 1.1f}},
      {"top_p", {.top_p = NAN}},
      {"min_p", {.min_p = -0.1f}},
      {"min_p", {.min_p = 2}},
      {"repeat_penalty", {.repeat_penalty = 0}},
      {"repeat_penalty", {.repeat_penalty = -1}},
      {"repeat_penalty", {.repeat_penalty = NAN}},
      {"uniform", {.uniform = 1}},
      {"uniform", {.uniform = -0.1f}},
      {"uniform", {.uniform = NAN}},
      {"recent", {.recent = ids}},
  };
  for (const auto& [field, p] : bad) {
    const SampleParams row[] = {{}, p};
    refused(field, [&](auto& s) { s.params = row; });
  }
}

TEST(Checks, CopiesAndSlots) {
  const int32_t rows[] = {0, 4}, high[] = {0, 5}, low[] = {-1, 0};
  EXPECT_NO_THROW(check_gather_rows(f32({5, 3}), rows, out32({2, 3})));
  EXPECT_THROW(check_gather_rows(f32({5, 3}), high, out32({2, 3})), Error);
  EXPECT_THROW(check_gather_rows(f32({5, 3}), low, out32({2, 3})), Error);
  EXPECT_THROW(check_gather_rows(f32({5, 3}), rows, out32({3, 3})), Error);
  EXPECT_THROW(check_gather_rows(f32({5, 3}), rows, out32({2, 4})), Error);
  EXPECT_THROW(check_gather_rows(f32({2, 3}), {}, Tensor()), Error);  // which width?
  EXPECT_NO_THROW(check_state_slot(f32({4, 3, 2}), 3));
  EXPECT_THROW(check_state_slot(f32({4, 3, 2}), 4), Error);
  EXPECT_THROW(check_state_slot(f32({4, 3, 2}), -1), Error);
  EXPECT_THROW(check_state_slot(Tensor(), 0), Error);
  EXPECT_NO_THROW(check_state_slot(f32({4, 3, 4}).slice(1, 1, 2), 0));  // gaps between slots
  EXPECT_THROW(check_state_slot(f32({4, 3, 4}).slice(2, 0, 2), 0), Error);
}

// Each operation of each backend asks before it works: one bad operand each.
class BackendChecks : public BackendTest {};
ADDER_TEST_ALL_TARGETS(BackendChecks);

TEST_P(BackendChecks, EveryOperationRefusesEmptyArguments) {
  EXPECT_THROW(backend_->embedding({}), Error);
  EXPECT_THROW(backend_->rms_norm({}), Error);
  EXPECT_THROW(backend_->gated_rms_norm({}), Error);
  EXPECT_THROW(backend_->matmul({}), Error);
  EXPECT_THROW(backend_->causal_conv1d({}), Error);
  EXPECT_THROW(backend_->selective_scan({}), Error);
  EXPECT_THROW(backend_->ssd_scan({}), Error);
  EXPECT_THROW(backend_->sample({}), Error);
  EXPECT_THROW(backend_->gather_rows({}, {}, {}), Error);
  EXPECT_THROW(backend_->state_zero({}, 0), Error);
  EXPECT_THROW(backend_->state_copy({}, 0, 0), Error);
  EXPECT_THROW(backend_->state_copy(f32({2, 3}), 0, 2), Error);
}

}  // namespace
}  // namespace adder::testing
