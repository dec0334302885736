// A step on the XLA backend allocates nothing on our side of the plugin. What the interpreter or
// the plugin allocates itself is left out.
#include <functional>

#include "allocation/allocation_counter.h"
#include "backends/xla/pjrt_executor.h"
#include "testing/fake_pjrt.h"
#include "testing/forwarding_executor.h"

namespace adder::testing {
namespace {

class UncountedExecutor final : public ForwardingExecutor {
 public:
  xla::ArrayPtr upload_as(const xla::TypePtr& type, std::span<const std::byte> bytes) override {
    const Uncounted interpreter;
    return ForwardingExecutor::upload_as(type, bytes);
  }
  void download(xla::Array& array, std::span<std::byte> bytes) override {
    const Uncounted interpreter;
    ForwardingExecutor::download(array, bytes);
  }
  std::unique_ptr<xla::Executable> compile(const xla::Program& program) override {
    return std::make_unique<Program>(ForwardingExecutor::compile(program));
  }

 private:
  class Program final : public xla::Executable {
   public:
    explicit Program(std::unique_ptr<xla::Executable> inner) : inner_(std::move(inner)) {}
    void run_into(std::span<const xla::ArrayPtr> arguments,
                  std::vector<xla::ArrayPtr>& results) override {
      std::vector<xla::ArrayPtr> own;
      {
        const Uncounted interpreter;
        own = inner_->run(arguments);
      }
      results.assign(own.begin(), own.end());
      const Uncounted interpreter;
      own = {};
    }

   private:
    std::unique_ptr<xla::Executable> inner_;
  };
};

class XlaAllocation : public ::testing::TestWithParam<std::string> {
 protected:
  XlaAllocation()
      : engine_(golden_engine(
            GetParam(), on_executor([] { return std::make_unique<UncountedExecutor>(); }, 4, 64))) {
  }

  static std::vector<GenerationRequest> requests() {
    std::vector<GenerationRequest> all(4, greedy(random_ids(1, 20), 0));
    all[1].sampling.temperature = 0.8f;
    all[2].sampling = {.temperature = 1, .top_k = 20, .min_p = 0.05f};
    all[3].sampling.repeat_penalty = 1.1f;
    return all;
  }

  std::unique_ptr<Engine> engine_;
};
INSTANTIATE_TEST_SUITE_P(Golden, XlaAllocation, ::testing::ValuesIn(golden_families()),
                         [](const auto& test) { return test.param; });

TEST_P(XlaAllocation, NoneInTheDecodeLoop) {
  ASSERT_NE(engine_->decode_loop(1), nullptr);
  for (const GenerationRequest& request : requests())
    EXPECT_EQ(for_each_further_token(*engine_, {request}), 0);
  EXPECT_EQ(for_each_further_token(*engine_, requests()), 0);
}

// As the scheduler does, which has a state to keep.
TEST_P(XlaAllocation, NoneInSingleSteps) {
  const auto further = [&](std::vector<GenerationRequest> all) {
    std::vector<Conversation> conversations(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].conversation = &conversations[i];
      all[i].finish_state = true;
    }
    return for_each_further_token(*engine_, all);
  };
  for (const GenerationRequest& request : requests()) EXPECT_EQ(further({request}), 0);
  EXPECT_EQ(further(requests()), 0);
}

// The calls of a step, with the counter off while the plugin is in them.
class UncountedPlugin {
 public:
  UncountedPlugin() : plugin_(xla::load_plugin(kFakePlugin)), api_(*plugin_.api) {
    real_ = plugin_.api;
    using xla::pjrt::Api;
    wrap<&Api::buffer_from_host_buffer>(api_.buffer_from_host_buffer);
    wrap<&Api::loaded_executable_execute>(api_.loaded_executable_execute);
    wrap<&Api::buffer_to_host_buffer>(api_.buffer_to_host_buffer);
    wrap<&Api::event_await>(api_.event_await);
    plugin_.api = &api_;
  }
  const xla::Plugin& plugin() const { return plugin_; }

 private:
  template <auto kCall, typename Args>
  static void wrap(xla::pjrt::Call<Args>& call) {
    call = [](Args* args) {
      const Uncounted others;
      return (real_->*kCall)(args);
    };
  }

  static inline const xla::pjrt::Api* real_ = nullptr;
  xla::Plugin plugin_;
  xla::pjrt::Api api_;
};

TEST(XlaAllocation, NoneInRunsOnAPlugin) {
  const ScopedFolder folder;
  const ScopedEnvironment cache("XDG_CACHE_HOME", folder.path().string());
  const UncountedPlugin fake;
  xla::PjrtExecutor executor(fake.plugin());
  const xla::Type pair{xla::Element::kF32, {1, 2}};
  const auto shared = std::make_shared<const xla::Type>(pair);
  const auto program =
      executor.compile_text("outputs 2 donate 0", {{pair, pair}, {pair, pair}, {0, -1}});
  const float values[] = {1, 2};
  float back[2] = {};
  std::vector<xla::ArrayPtr> arguments(2), results;
  const auto step = [&] {
    arguments[1] = executor.upload_as(shared, std::as_bytes(std::span(values)));
    program->run_into(arguments, results);
    executor.download(*results[1], std::as_writable_bytes(std::span(back)));
    arguments[0] = results[0];
  };
  arguments[0] = executor.upload_as(shared, std::as_bytes(std::span(values)));
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 10; ++i) step();
            }),
            0);
  EXPECT_EQ(back[1], 2);
}

}  // namespace
}  // namespace adder::testing
