// Products ask for the highest precision. Without it the interpreter rounds float32 as a TPU does,
// and whole models leave the bounds that model_test.cc holds them to.

#include <cmath>

#include "engine/scoring.h"
#include "testing/forwarding_executor.h"
#include "xla/xla_engine.h"

namespace adder::testing {
namespace {

class DefaultPrecisionExecutor final : public ForwardingExecutor {
 public:
  std::unique_ptr<xla::Executable> compile(const xla::Program& program) override {
    xla::Program lowered = program;
    lower(lowered.main);
    return ForwardingExecutor::compile(lowered);
  }

 private:
  static void lower(xla::Block& block) {
    for (xla::Op& op : block.ops) {
      op.precision = xla::Precision::kDefault;
      for (xla::Block& region : op.regions) lower(region);
    }
  }
};

// The largest difference of the logits after a prompt, relative to the largest of them.
double difference_from_ref(const std::string& model, const EngineOptions& options) {
  EngineOptions ref;
  ref.device = "ref";
  const auto tokens = random_ids(7, 60, 90);
  const auto got = last_logits(*golden_engine(model, options), tokens, 1);
  const auto want = last_logits(*golden_engine(model, ref), tokens, 1);
  double largest = 0, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
    difference = std::max(difference, std::abs(static_cast<double>(got[i]) - want[i]));
  }
  return difference / largest;
}

TEST(XlaPrecision, DefaultPrecisionIsOutOfBounds) {
  const auto lowered = [] { return std::make_unique<DefaultPrecisionExecutor>(); };
  for (const std::string model : {"mamba1_hf", "mamba2_hf_groups4"}) {
    EngineOptions highest;
    highest.device = "xla:interpreter";
    // bfloat16 has 8 bits: 2^-9 relative to each factor. The bound of "XLA backend, fp32 HIGHEST"
    // is 1e-5.
    EXPECT_LT(difference_from_ref(model, highest), 1e-5) << model;
    EXPECT_GT(difference_from_ref(model, on_executor(lowered, 1, 64)), 2e-4) << model;
  }
}

}  // namespace
}  // namespace adder::testing
