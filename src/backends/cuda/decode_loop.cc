// The decode loop: a step is recorded once and enqueued again and again. What changes between steps
// lies in device memory: the tokens, the slots of the batch, of which that of a row that has ended
// becomes -1, and the state of the sampler.
#include <algorithm>
#include <limits>
#include <numeric>

#include "backends/cuda/ops.h"
#include "backends/cuda/sample/decode_params.h"
#include "core/error.h"
#include "kernels/checks.h"

namespace adder::ADDER_CUDA_NS {
namespace {

// The host only looks at tokens; a few steps ahead hide its delays.
constexpr int kStepsInFlight = 4;

class CudaDecodeLoop final : public DecodeLoop {
 public:
  CudaDecodeLoop(CudaContext& context, int64_t rows, int64_t vocab_limit, const DecodeStep& step)
      : context_(context), n_(rows), tokens_(static_cast<size_t>(rows), 0) {
    const auto n = static_cast<size_t>(rows);
    std::vector<int32_t> starts(n + 1), slots(n);
    std::iota(starts.begin(), starts.end(), 0);
    std::iota(slots.begin(), slots.end(), 0);  // any that pass the checks
    Device& device = context.device;
    ids_ = device.allocate((4 * n + 1) * sizeof(int32_t));
    rows_ = device.allocate(n * sizeof(DecodeRowState));
    recent_ = device.allocate(n * kDecodeRecent * sizeof(int32_t));
    penalised_ =
        device.allocate(n * static_cast<size_t>(sample_words(vocab_limit)) * sizeof(uint32_t));
    device.upload(seq_start(), starts.data(), starts.size() * sizeof(int32_t));

    const PackedBatch batch{starts, slots};
    memory_.tokens = tokens_.data();
    memory_.device_tokens = token_ids();
    memory_.batch = &batch;
    memory_.device_batch = {seq_start(), state_slot(), static_cast<int32_t>(rows), rows, 1};
    step_ = context.record(memory_, [&] {
      const Tensor logits = step(tokens_, batch);
      check_logits(logits, vocab_limit);
      vocab_ = logits.dim(1);
      decode_sample(device, n_,
                    {logits.ptr<const float>(), logits.stride[0], static_cast<int32_t>(vocab_limit),
                     states(), static_cast<int32_t*>(recent_.data()),
                     static_cast<uint32_t*>(penalised_.data()), token_ids(), state_slot(), out()});
    });
    memory_.batch = nullptr;
    read_back_ = device.read_back(out(), n * sizeof(int32_t), kStepsInFlight);
  }
  // Nothing that is enqueued may outlive its memory.
  ~CudaDecodeLoop() override {
    try {
      context_.device.synchronize();
    } catch (const Error&) {
    }
  }

  int64_t rows() const override { return n_; }
  int64_t steps_in_flight() const override { return kStepsInFlight; }

  void start(std::span<const DecodeRow> rows) override {
    check(rows, n_, vocab_);
    while (in_flight_ > 0) read();
    Device& device = context_.device;
    std::vector<int32_t> tokens(static_cast<size_t>(n_), 0), slots(static_cast<size_t>(n_), -1);
    std::vector<int32_t> stop_ids;
    for (const DecodeRow& r : rows)
      stop_ids.insert(stop_ids.end(), r.stop_ids.begin(), r.stop_ids.end());
    if (stop_ids.size() * sizeof(int32_t) > stop_ids_.size())
      stop_ids_ = device.allocate(stop_ids.size() * sizeof(int32_t));
    device.upload(stop_ids_.data(), stop_ids.data(), stop_ids.size() * sizeof(int32_t));

    std::vector<DecodeRowState> states(static_cast<size_t>(n_));
    const auto* stops = static_cast<const int32_t*>(stop_ids_.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      const DecodeRow& r = rows[i];
      const SampleParams& p = r.sampling;
      tokens[i] = r.token;
      slots[i] = r.slot;
      states[i] = {{p.temperature, p.top_p, p.min_p, p.repeat_penalty, 0.0f, p.top_k},
                   r.repeat_last_n,
                   static_cast<int32_t>(r.stop_ids.size()),
                   stops,
                   r.seed,
                   r.index,
                   static_cast<int64_t>(p.recent.size()),
                   r.max_tokens};
      stops += r.stop_ids.size();
      device.upload(static_cast<int32_t*>(recent_.data()) + i * kDecodeRecent, p.recent.data(),
                    p.recent.size_bytes());
    }
    device.upload(rows_.data(), states.data(), states.size() * sizeof states[0]);
    device.upload(token_ids(), tokens.data(), tokens.size() * sizeof(int32_t));
    device.upload(state_slot(), slots.data(), slots.size() * sizeof(int32_t));
  }

  void step() override {
    ADDER_CHECK(in_flight_ < kStepsInFlight,
                "decode_loop: step: expected at most {} that have not been read, got {} more",
                kStepsInFlight, in_flight_ + 1 - kStepsInFlight);
    step_->enqueue();
    read_back_->enqueue();
    ++in_flight_;
  }

  std::span<const int32_t> read() override {
    ADDER_CHECK(in_flight_ > 0, "decode_loop: read: expected a step that has not been read, got {}",
                in_flight_);
    --in_flight_;
    return {static_cast<const int32_t*>(read_back_->wait()), static_cast<size_t>(n_)};
  }

 private:
  void check_logits(const Tensor& logits, int64_t vocab_limit) const {
    const std::vector<SampleParams> params(static_cast<size_t>(n_));
    std::vector<int32_t> ids(static_cast<size_t>(n_));
    check(SampleArgs{logits, vocab_limit, params, ids});
    ADDER_CHECK(vocab_limit <= std::numeric_limits<int32_t>::max(),
                "decode_loop: vocab_limit: expected at most {}, got {}",
                std::numeric_limits<int32_t>::max(), vocab_limit);
  }

  int32_t* token_ids() const { return static_cast<int32_t*>(ids_.data()); }
  int32_t* out() const { return token_ids() + n_; }
  int32_t* state_slot() const { return token_ids() + 2 * n_; }
  int32_t* seq_start() const { return token_ids() + 3 * n_; }
  DecodeRowState* states() const { return static_cast<DecodeRowState*>(rows_.data()); }

  CudaContext& context_;
  int64_t n_, vocab_ = 0, in_flight_ = 0;
  std::vector<int32_t> tokens_;  // stands for those on the device
  Buffer ids_, rows_, recent_, penalised_, stop_ids_;
  RecordedMemory memory_;
  std::unique_ptr<RecordedWork> step_;
  std::unique_ptr<ReadBack> read_back_;
};

}  // namespace

std::unique_ptr<DecodeLoop> make_decode_loop(CudaContext& context, int64_t rows,
                                             int64_t vocab_limit, const DecodeStep& step) {
  ADDER_CHECK(rows >= 1, "decode_loop: rows: expected at least 1, got {}", rows);
  return std::make_unique<CudaDecodeLoop>(context, rows, vocab_limit, step);
}

}  // namespace adder::ADDER_CUDA_NS
