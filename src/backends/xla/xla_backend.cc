#include "backends/xla/xla_backend.h"

#include <algorithm>
#include <limits>

#include "backends/xla/decode_loop.h"
#include "backends/xla/lower.h"
#include "backends/xla/lower_sample.h"
#include "backends/xla/lower_sequences.h"
#include "core/error.h"
#include "core/quant.h"
#include "kernels/checks.h"

namespace adder::xla {
namespace {

Shape2 matrix(int64_t rows, int64_t cols) {
  return {Element::kF32, rows, cols};
}

int64_t entry_size(const Tensor& t) {
  return t.dim(0) == 0 ? 0 : t.size() / t.dim(0);
}

// A 16-bit or quantized matrix as float32, row by row.
std::vector<float> widened(const Tensor& t) {
  const auto cols = static_cast<size_t>(t.dim(1));
  std::vector<float> out(static_cast<size_t>(t.size()));
  for (int64_t row = 0; row < t.dim(0); ++row)
    dequantize_row(t.dtype, t.bytes(row * t.stride[0]),
                   std::span(out).subspan(static_cast<size_t>(row) * cols, cols));
  return out;
}

}  // namespace

XlaBackend::XlaBackend(std::unique_ptr<Executor> executor) : recorder_(std::move(executor)) {}

Buffer XlaBackend::allocate(size_t bytes) {
  return recorder_.memory().allocate(bytes);
}

Tensor XlaBackend::import_weight(const Tensor& host, WeightUse use, Buffer* owner) {
  // Only float32 holds what a quantized weight stands for: Q8_0's have 18 bits.
  const bool widens = use == WeightUse::kMatmul && host.dtype != DType::kF32 &&
                      recorder_.executor().widens_weights();
  if (is_quantized(host.dtype) || widens) {
    const std::vector<float> values = widened(host);
    Tensor wide = host;
    wide.dtype = DType::kF32;
    wide.data = const_cast<float*>(values.data());  // import() reads it
    wide.offset = 0;
    wide.stride = {host.dim(1), 1};
    return recorder_.import(wide, owner);
  }
  return recorder_.import(host, owner);
}

void XlaBackend::read(const Tensor& tensor, std::span<std::byte> host) {
  check_copy("read", tensor, host.size());
  recorder_.read(tensor, host);
}

void XlaBackend::write(const Tensor& tensor, std::span<const std::byte> host) {
  check_copy("write", tensor, host.size());
  recorder_.write(tensor, host);
}

void XlaBackend::synchronize() {
  recorder_.synchronize();
}

// Records an operation, whose loads all come before its stores.
template <typename F>
void XlaBackend::record(F&& f) {
  // Parts that lie over each other are joined one buffer at a time, as loads come upon them.
  for (bool done = false; !done;) {
    try {
      f();
      done = true;
    } catch (const Recorder::Unsettled& memory) {
      recorder_.settle(memory);
    }
  }
  recorder_.flush_if_long();
}

Ref XlaBackend::optional(const Tensor& tensor) {
  return tensor ? recorder_.load(tensor) : kNoRef;
}

Ref XlaBackend::optional_rows(const Tensor& tensor, int64_t rows) {
  return tensor ? recorder_.load(tensor, rows) : kNoRef;
}

Ref XlaBackend::slots_of(const PackedBatch& batch, int64_t rows) {
  if (loop_.slots != nullptr && batch.state_slot.data() == loop_.slots) return loop_.slot_ref;
  place_sequences(batch, rows, slots_);
  return recorder_.indices(Recorder::Role::kSlots, slots_, std::ssize(slots_), -1);
}

Ref XlaBackend::valid_of(const PackedBatch& batch) {
  if (sequence_form(batch) != SequenceForm::kSingle) return kNoRef;
  return recorder_.number(Recorder::Role::kValid, static_cast<int32_t>(batch.n_tokens()));
}

void XlaBackend::embedding(const EmbeddingArgs& a) {
  check(a);
  if (a.out.size() == 0) return;
  recorder_.begin_step();
  record([&] {
    const int64_t rows = padded(static_cast<int64_t>(a.ids.size()));
    const Ref weight = recorder_.load(a.weight);
    const Ref ids = loop_.tokens != nullptr && a.ids.data() == loop_.tokens
                        ? loop_.token_ref
                        : recorder_.indices(Recorder::Role::kIds, a.ids, rows, 0);
    recorder_.store(
        a.out, recorder_.append(TapeOp::kEmbedding, {weight, ids}, {}, matrix(rows, a.out.dim(1))));
  });
}

void XlaBackend::gather_rows(const Tensor& x, std::span<const int32_t> picked, const Tensor& out) {
  check_gather_rows(x, picked, out);
  if (out.size() == 0) return;
  record([&] {
    const int64_t rows = padded(out.dim(0));
    const Ref from = recorder_.load(x, padded(x.dim(0)));
    const Ref which = recorder_.indices(Recorder::Role::kRows, picked, rows, 0);
    recorder_.store(
        out, recorder_.append(TapeOp::kGatherRows, {from, which}, {}, matrix(rows, out.dim(1))));
  });
}

void XlaBackend::rms_norm(const RmsNormArgs& a) {
  check(a);
  if (a.out.size() == 0) return;
  record([&] {
    const int64_t rows = padded(a.x.dim(0));
    const int64_t operands[] = {recorder_.load(a.x, rows), optional_rows(a.residual, rows),
                                optional(a.weight)};
    const int64_t attributes[] = {real_attribute(a.eps)};
    const Shape2 shapes[] = {matrix(rows, a.x.dim(1)), matrix(rows, a.x.dim(1))};
    const Ref out = recorder_.append_results(TapeOp::kRmsNorm, operands, attributes,
                                             std::span(shapes, a.residual ? 2 : 1));
    if (a.residual) recorder_.store(a.residual, out + 1);
    recorder_.store(a.out, out);
  });
}

void XlaBackend::gated_rms_norm(const GatedRmsNormArgs& a) {
  check(a);
  if (a.out.size() == 0) return;
  record([&] {
    const int64_t rows = padded(a.x.dim(0));
    const Ref x = recorder_.load(a.x, rows), z = recorder_.load(a.z, rows);
    recorder_.store(a.out, recorder_.append(TapeOp::kGatedNorm, {x, z, recorder_.load(a.weight)},
                                            {real_attribute(a.eps), a.groups, a.norm_before_gate},
                                            matrix(rows, a.x.dim(1))));
  });
}

void XlaBackend::matmul(const MatmulArgs& a) {
  check(a);
  if (a.out.size() == 0) return;
  record([&] {
    const int64_t rows = padded(a.x.dim(0));
    const Ref x = recorder_.load(a.x, rows), weight = recorder_.load(a.weight);
    const bool split = rows == 1 && recorder_.executor().splits_row_products();
    recorder_.store(a.out, recorder_.append(TapeOp::kMatmul, {x, weight, optional(a.bias)}, {split},
                                            matrix(rows, a.out.dim(1))));
  });
}

void XlaBackend::causal_conv1d(const CausalConv1dArgs& a) {
  check(a);
  if (a.out.size() == 0) return;
  record([&] {
    const int64_t rows = padded(a.x.dim(0));
    const int64_t operands[] = {recorder_.load(a.x, rows), recorder_.load(a.weight),
                                optional(a.bias),          recorder_.load_state(a.conv_state),
                                slots_of(a.batch, rows),   valid_of(a.batch)};
    attributes_.assign({a.silu});
    describe_sequences(a.batch, attributes_);
    const Shape2 shapes[] = {matrix(rows, a.x.dim(1)),
                             matrix(a.conv_state.dim(0), entry_size(a.conv_state))};
    const Ref out = recorder_.append_results(TapeOp::kConv, operands, attributes_, shapes);
    recorder_.store(a.conv_state, out + 1);
    recorder_.store(a.out, out);
  });
}

void XlaBackend::selective_scan(const SelectiveScanArgs& a) {
  check(a);
  if (a.out.size() == 0) return;
  record([&] {
    const int64_t rows = padded(a.u.dim(0));
    const int64_t operands[] = {recorder_.load(a.u, rows),
                                recorder_.load(a.delta, rows),
                                recorder_.load(a.A_log2e),
                                recorder_.load(a.B, rows),
                                recorder_.load(a.C, rows),
                                optional(a.D),
                                optional_rows(a.z, rows),
                                optional(a.delta_bias),
                                recorder_.load_state(a.ssm_state),
                                slots_of(a.batch, rows),
                                valid_of(a.batch)};
    attributes_.assign({a.B.dim(1), a.delta_softplus});
    describe_sequences(a.batch, attributes_);
    const Shape2 shapes[] = {matrix(rows, a.u.dim(1)),
                             matrix(a.ssm_state.dim(0), entry_size(a.ssm_state))};
    const Ref out = recorder_.append_results(TapeOp::kSelective, operands, attributes_, shapes);
    recorder_.store(a.ssm_state, out + 1);
    recorder_.store(a.out, out);
  });
}

void XlaBackend::ssd_scan(const SsdScanArgs& a) {
  check(a);
  if (a.out.size() == 0) return;
  record([&] {
    const int64_t rows = padded(a.x.dim(0));
    const int64_t operands[] = {
        recorder_.load(a.x, rows), recorder_.load(a.dt, rows), recorder_.load(a.A_log2e),
        recorder_.load(a.B, rows), recorder_.load(a.C, rows),  optional(a.D),
        optional_rows(a.z, rows),  optional(a.dt_bias),        recorder_.load_state(a.ssm_state),
        slots_of(a.batch, rows),   valid_of(a.batch)};
    const int64_t heads = a.x.dim(1), headdim = a.x.dim(2);
    attributes_.assign({heads, headdim, a.B.dim(1), a.B.dim(2), a.dt_softplus,
                        real_attribute(a.dt_min), real_attribute(a.dt_max), a.D.rank == 2});
    describe_sequences(a.batch, attributes_);
    const Shape2 shapes[] = {matrix(rows, heads * headdim),
                             matrix(a.ssm_state.dim(0), entry_size(a.ssm_state))};
    const Ref out = recorder_.append_results(TapeOp::kSsd, operands, attributes_, shapes);
    recorder_.store(a.ssm_state, out + 1);
    recorder_.store(a.out, out);
  });
}

void XlaBackend::SampleNumbers::set(const SampleArgs& a, size_t rows) {
  draws = penalises = false;
  temperature.assign(rows, 1.0f);
  min_p.assign(rows, 0.0f);
  penalty.assign(rows, 1.0f);
  top_k.assign(rows, 1);
  top_p.assign(rows, 0);
  uniform.assign(rows, 0);
  ids.resize(rows);
  for (size_t i = 0; i < a.params.size(); ++i) {
    const SampleParams& p = a.params[i];
    draws = draws || p.temperature != 0;
    penalises = penalises || (p.repeat_penalty != 1.0f && !p.recent.empty());
    temperature[i] = p.temperature;
    min_p[i] = p.min_p;
    penalty[i] = p.repeat_penalty;
    top_k[i] = p.top_k == 0 ? std::numeric_limits<int32_t>::max() : p.top_k;
    top_p[i] = in_units(p.top_p);
    uniform[i] = in_units(p.uniform);
  }
  if (!penalises) return;
  const auto limit = static_cast<size_t>(a.vocab_limit);
  penalised.assign(rows * limit, 0);
  for (size_t i = 0; i < a.params.size(); ++i)
    for (const int32_t id : a.params[i].recent)
      if (static_cast<size_t>(id) < limit) penalised[i * limit + static_cast<size_t>(id)] = 1;
}

void XlaBackend::sample(const SampleArgs& a) {
  check(a);
  if (a.params.empty()) return;
  const int64_t rows = padded(a.logits.dim(0));
  SampleNumbers& s = sample_;
  s.set(a, static_cast<size_t>(rows));
  Ref chosen = kNoRef;
  record([&] {
    int64_t operands[8];
    std::fill(std::begin(operands), std::end(operands), kNoRef);
    operands[0] = recorder_.load(a.logits, rows);
    using Role = Recorder::Role;
    const auto numbers = [&](Role role, Element element, const auto& values) {
      return recorder_.numbers(role, element, std::as_bytes(std::span(values)));
    };
    if (s.penalises) {
      operands[1] = numbers(Role::kPenalised, Element::kI8, s.penalised);
      operands[2] = numbers(Role::kPenalty, Element::kF32, s.penalty);
    }
    if (s.draws) {
      operands[3] = numbers(Role::kTemperature, Element::kF32, s.temperature);
      operands[4] = numbers(Role::kMinP, Element::kF32, s.min_p);
      operands[5] = numbers(Role::kTopK, Element::kI32, s.top_k);
      operands[6] = numbers(Role::kTopP, Element::kU64, s.top_p);
      operands[7] = numbers(Role::kUniform, Element::kU64, s.uniform);
    }
    const int64_t attributes[] = {a.vocab_limit};
    const Shape2 shape{Element::kI32, rows, 1};
    chosen = recorder_.append_results(TapeOp::kSample, operands, attributes, {&shape, 1});
  });
  const ArrayPtr array = recorder_.flush(chosen);
  recorder_.download(*array, std::as_writable_bytes(std::span(s.ids)), recorder_.last_program());
  for (size_t i = 0; i < a.out.size(); ++i) {
    if (s.ids[i] == kDecodeNotFinite)
      fail(ErrorCode::kInternal, "sample: row {}: expected a finite largest logit, got NaN or Inf",
           i);
    a.out[i] = s.ids[i];
  }
}

void XlaBackend::state_zero(const Tensor& state, int32_t slot) {
  check_state_slot(state, slot);
  recorder_.set_slot(state, -1, slot);
}

void XlaBackend::state_copy(const Tensor& state, int32_t from, int32_t to) {
  check_state_slot(state, from);
  check_state_slot(state, to);
  if (from != to) recorder_.set_slot(state, from, to);
}

std::unique_ptr<DecodeLoop> XlaBackend::make_decode_loop(int64_t rows, int64_t vocab_limit,
                                                         const DecodeStep& step) {
  return xla::make_decode_loop(*this, rows, vocab_limit, step);
}

namespace {

std::unique_ptr<Executor> make_executor(std::string_view which,
                                        std::optional<uint64_t> jit_cache_mb = {}) {
  return which == "interpreter" ? make_interpreter() : make_pjrt_executor(which, jit_cache_mb);
}

}  // namespace

std::unique_ptr<Backend> make_backend(std::string_view which,
                                      std::optional<uint64_t> jit_cache_mb) {
  return std::make_unique<XlaBackend>(make_executor(which, jit_cache_mb));
}

bool computes_on_host(std::string_view which) {
  return make_executor(which)->on_host();
}

}  // namespace adder::xla
