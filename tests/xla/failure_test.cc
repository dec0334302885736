// A device that fails in the middle of a run: its sequences end, others can begin.

#include "core/error.h"
#include "testing/forwarding_executor.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

struct Countdown {
  int runs = 0;   // the run that fails: 1 is the next one; 0: none
  int reads = 0;  // the same
};

class FailingExecutor final : public ForwardingExecutor {
 public:
  explicit FailingExecutor(std::shared_ptr<Countdown> countdown)
      : countdown_(std::move(countdown)) {}

  // A program that failed is heard of where its results are waited for.
  void download(xla::Array& array, std::span<std::byte> bytes) override {
    if (countdown_->reads > 0 && --countdown_->reads == 0) fail(ErrorCode::kIo, "device is gone");
    ForwardingExecutor::download(array, bytes);
  }

  std::unique_ptr<xla::Executable> compile(const xla::Program& program) override {
    return std::make_unique<Failing>(ForwardingExecutor::compile(program), countdown_);
  }

 private:
  class Failing final : public xla::Executable {
   public:
    Failing(std::unique_ptr<xla::Executable> inner, std::shared_ptr<Countdown> countdown)
        : inner_(std::move(inner)), countdown_(std::move(countdown)) {}
    void run_into(std::span<const xla::ArrayPtr> arguments,
                  std::vector<xla::ArrayPtr>& results) override {
      inner_->run_into(arguments, results);  // which takes the donated arrays
      if (countdown_->runs > 0 && --countdown_->runs == 0) fail(ErrorCode::kIo, "no memory left");
    }

   private:
    std::unique_ptr<xla::Executable> inner_;
    std::shared_ptr<Countdown> countdown_;
  };

  std::shared_ptr<Countdown> countdown_;
};

class XlaFailure : public ::testing::TestWithParam<std::string> {
 protected:
  XlaFailure() {
    const auto countdown = countdown_;
    engine_ = golden_engine(
        GetParam(),
        on_executor([countdown] { return std::make_unique<FailingExecutor>(countdown); }, 2, 64));
  }

  std::vector<float> feed(StateHandle& state, std::span<const int32_t> tokens) {
    const Piece piece{&state, tokens};
    const std::vector<int32_t> last = {static_cast<int32_t>(tokens.size()) - 1};
    const Tensor logits = engine_->logits(engine_->step({&piece, 1}), last);
    std::vector<float> row(static_cast<size_t>(logits.size()));
    engine_->backend().read(logits, std::as_writable_bytes(std::span(row)));
    return row;
  }
  // What feeding throws; empty: nothing.
  std::string failure_of(StateHandle& state, std::span<const int32_t> tokens) {
    try {
      feed(state, tokens);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kIo);
      return e.what();
    }
    return "";
  }

  std::shared_ptr<Countdown> countdown_ = std::make_shared<Countdown>();
  std::unique_ptr<Engine> engine_;
  const std::vector<int32_t> tokens_ = random_ids(5, 20, 90);
};
INSTANTIATE_TEST_SUITE_P(Golden, XlaFailure, ::testing::Values("mamba1_hf", "mamba2_hf_groups4"),
                         [](const auto& test) { return test.param; });

TEST_P(XlaFailure, AStateThatIsLostIsNotRead) {
  auto old = engine_->states().acquire(), other = engine_->states().acquire();
  const auto want = feed(other, tokens_);
  feed(old, tokens_);
  countdown_->runs = 1;
  EXPECT_EQ(failure_of(old, tokens_), "no memory left");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(failure_of(other, std::span(tokens_).first(1)),
              "xla: what was computed is lost since the device has failed: no memory left");
  // A new sequence begins with a state of its own.
  old = StateHandle();
  auto fresh = engine_->states().acquire();
  EXPECT_TRUE(same_bits(feed(fresh, tokens_), want));
  // The slots beside it are no zeros.
  for (const float logit : feed(other, std::span(tokens_).first(1))) EXPECT_TRUE(std::isnan(logit));
}

TEST_P(XlaFailure, ARunThatFailsLaterLosesTheSame) {
  auto old = engine_->states().acquire(), other = engine_->states().acquire();
  const auto want = feed(other, tokens_);
  countdown_->reads = 1;
  EXPECT_EQ(failure_of(old, tokens_), "device is gone");
  for (StateHandle* state : {&old, &other})
    EXPECT_EQ(failure_of(*state, std::span(tokens_).first(1)),
              "xla: what was computed is lost since the device has failed: device is gone");
  old = StateHandle();
  auto fresh = engine_->states().acquire();
  EXPECT_TRUE(same_bits(feed(fresh, tokens_), want));
}

TEST_P(XlaFailure, ALoopThatFailsLaterEnds) {
  const auto request = greedy(random_ids(6, 9, 90), 40);
  const auto want = generate(*engine_, request).tokens;
  for (int read = 1; read <= 4; ++read) {  // the first token, and three runs of the loop
    Conversation conversation;
    GenerationRequest in_conversation = request;
    in_conversation.conversation = &conversation;
    in_conversation.finish_state = false;
    countdown_->reads = read;
    EXPECT_THROW(generate(*engine_, in_conversation), Error) << read;
    EXPECT_EQ(failure_of(conversation.state, std::span(tokens_).first(1)),
              "xla: what was computed is lost since the device has failed: device is gone")
        << read;
    conversation.state = StateHandle();
    EXPECT_EQ(generate(*engine_, request).tokens, want) << read;
  }
}

TEST_P(XlaFailure, TheDecodeLoopEndsAndTheNextOneIsWhole) {
  const auto request = greedy(random_ids(6, 9, 90), 40);
  const auto want = generate(*engine_, request).tokens;
  // The programs of a prompt, then those of the loop: each of them fails once.
  int failures = 0;
  for (int run = 1; run < 8; ++run) {
    countdown_->runs = run;
    try {
      generate(*engine_, request);
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "no memory left");
      ++failures;
    }
    countdown_->runs = 0;
    EXPECT_EQ(generate(*engine_, request).tokens, want) << run;
  }
  EXPECT_GE(failures, 3);
}

}  // namespace
}  // namespace adder::testing
