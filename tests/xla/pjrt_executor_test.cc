#include "backends/xla/pjrt_executor.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <numeric>

#include "testing/fake_pjrt.h"

namespace adder::xla {
namespace {

namespace fs = std::filesystem;

const Type kThreeFloats{Element::kF32, {3}};

class PjrtExecutorOnFake : public ::testing::Test {
 protected:
  ~PjrtExecutorOnFake() override {
    EXPECT_EQ(fake_counter(kFakePlugin, "fake_pjrt_live_objects"), 0) << "everything is destroyed";
  }

  static PjrtExecutor make() { return PjrtExecutor(load_plugin(kFakePlugin)); }
  static ArrayPtr upload(PjrtExecutor& executor, std::vector<float> values) {
    const Type type{Element::kF32, {static_cast<int64_t>(values.size())}};
    return executor.upload(type, std::as_bytes(std::span(values)));
  }
  static std::vector<float> download(PjrtExecutor& executor, Array& array) {
    std::vector<float> values(static_cast<size_t>(array.type().size()));
    executor.download(array, std::as_writable_bytes(std::span(values)));
    return values;
  }
  static int compilations() { return fake_counter(kFakePlugin, "fake_pjrt_compilations"); }

  // What an action throws.
  template <typename F>
  static std::string thrown(ErrorCode code, const F& action) {
    try {
      action();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      return e.what();
    }
    return "nothing";
  }

  ScopedFolder folder_;
  ScopedEnvironment cache_{"XDG_CACHE_HOME", folder_.path().string()};
};

TEST_F(PjrtExecutorOnFake, CopiesThereAndBack) {
  auto executor = make();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{1} << 20}) {
    std::vector<float> values(size);
    std::iota(values.begin(), values.end(), 1.0f);
    const ArrayPtr array = upload(executor, values);
    EXPECT_EQ(array->type(), (Type{Element::kF32, {static_cast<int64_t>(size)}}));
    EXPECT_EQ(download(executor, *array), values);
  }
  for (const Element element : {Element::kPred, Element::kI8, Element::kI32, Element::kU32,
                                Element::kU64, Element::kF16, Element::kBF16, Element::kF32}) {
    const Type scalar{element, {}};
    std::vector<std::byte> bytes(element_bytes(element), std::byte{1});
    const ArrayPtr array = executor.upload(scalar, bytes);
    std::vector<std::byte> back(bytes.size());
    executor.download(*array, back);
    EXPECT_EQ(back, bytes) << element_name(element);
  }
}

TEST_F(PjrtExecutorOnFake, RunsAProgram) {
  auto executor = make();
  const auto program = executor.compile_text(
      "outputs 2", {{kThreeFloats, kThreeFloats}, {kThreeFloats, kThreeFloats}, {-1, -1}});
  const std::vector<ArrayPtr> arguments = {upload(executor, {1, 2, 3}),
                                           upload(executor, {4, 5, 6})};
  const auto results = program->run(arguments);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[1]->type(), kThreeFloats);
  EXPECT_EQ(download(executor, *results[0]), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(download(executor, *results[1]), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(download(executor, *arguments[0]), (std::vector<float>{1, 2, 3})) << "still there";
}

TEST_F(PjrtExecutorOnFake, ConsumesDonatedArguments) {
  auto executor = make();
  const auto program = executor.compile_text(
      "outputs 2 donate 1", {{kThreeFloats, kThreeFloats}, {kThreeFloats, kThreeFloats}, {-1, 1}});
  const std::vector<ArrayPtr> arguments = {upload(executor, {1, 2, 3}),
                                           upload(executor, {4, 5, 6})};
  const auto results = program->run(arguments);
  EXPECT_EQ(download(executor, *results[1]), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(download(executor, *arguments[0]), (std::vector<float>{1, 2, 3}));
  for (const auto& action : std::vector<std::function<void()>>{
           [&] { download(executor, *arguments[1]); }, [&] { program->run(arguments); }}) {
    EXPECT_EQ(thrown(ErrorCode::kInternal, action),
              "pjrt executor: got an array that was donated before");
  }
}

TEST_F(PjrtExecutorOnFake, OutlivesNobody) {
  ArrayPtr array, result;
  std::unique_ptr<Executable> program;
  {
    auto executor = make();
    array = upload(executor, {1, 2, 3});
    program = executor.compile_text("outputs 1", {{kThreeFloats}, {kThreeFloats}, {-1}});
  }
  result = program->run(std::vector<ArrayPtr>{array})[0];
  program.reset();
  array.reset();
  EXPECT_GT(fake_counter(kFakePlugin, "fake_pjrt_live_objects"), 1);
}

TEST_F(PjrtExecutorOnFake, RefusesWhatDoesNotFit) {
  auto executor = make();
  auto other = make();
  const auto program = executor.compile_text("outputs 1", {{kThreeFloats}, {kThreeFloats}, {-1}});
  const ArrayPtr array = upload(executor, {1, 2, 3});
  const auto run = [&](std::vector<ArrayPtr> arguments) {
    return thrown(ErrorCode::kInternal, [&] { program->run(arguments); });
  };
  EXPECT_EQ(run({}), "pjrt executor: expected 1 arguments, got 0");
  EXPECT_EQ(run({upload(executor, {1})}),
            "pjrt executor: argument 0: expected tensor<3xf32>, got tensor<1xf32>");
  EXPECT_EQ(run({upload(other, {1, 2, 3})}), "pjrt executor: got an array of another executor");
  std::vector<std::byte> small(11);
  EXPECT_EQ(thrown(ErrorCode::kInternal, [&] { executor.download(*array, small); }),
            "pjrt executor: an array of 12 bytes, got room for 11");
  EXPECT_EQ(thrown(ErrorCode::kInternal, [&] { executor.upload(kThreeFloats, small); }),
            "pjrt executor: an array of 12 bytes, got 11");
  EXPECT_EQ(thrown(ErrorCode::kInternal,
                   [&] {
                     executor.compile_text("outputs 2", {{kThreeFloats}, {kThreeFloats}, {-1}});
                   }),
            "pjrt executor: expected a program of 1 results, got 2");
}

TEST_F(PjrtExecutorOnFake, TellsWhatThePluginSays) {
  auto executor = make();
  const auto program = executor.compile_text("outputs 1", {{kThreeFloats}, {kThreeFloats}, {-1}});
  const std::vector<ArrayPtr> arguments = {upload(executor, {1, 2, 3})};
  {
    const ScopedEnvironment fault("FAKE_PJRT", "compile");
    EXPECT_EQ(thrown(ErrorCode::kIo, [&] { executor.compile_text("outputs 0", {}); }),
              "cannot compile the program: fake: cannot parse");
  }
  {
    const ScopedEnvironment fault("FAKE_PJRT", "oom");
    EXPECT_EQ(
        thrown(ErrorCode::kIo, [&] { upload(executor, {1}); }),
        "cannot copy an array to the device: the device has no memory left for 4 bytes (free: "
        "4000 of 5000): fake: 5 of 5 bytes used");
  }
  {
    const ScopedEnvironment fault("FAKE_PJRT", "run");
    EXPECT_EQ(thrown(ErrorCode::kIo, [&] { program->run(arguments); }),
              "cannot run the program: the device has no memory left for 12 bytes (free: 4000 of "
              "5000): fake: no room for the results");
  }
  {
    const ScopedEnvironment fault("FAKE_PJRT", "oom,no_stats");
    EXPECT_EQ(thrown(ErrorCode::kIo, [&] { upload(executor, {1}); }),
              "cannot copy an array to the device: the device has no memory left for 4 bytes (in "
              "use: 12): fake: 5 of 5 bytes used");
  }
  ArrayPtr result;
  {
    const ScopedEnvironment fault("FAKE_PJRT", "run_later");
    result = program->run(arguments)[0];
  }
  EXPECT_EQ(thrown(ErrorCode::kIo, [&] { download(executor, *result); }),
            "cannot copy an array from the device: fake: the device failed");
  EXPECT_EQ(download(executor, *program->run(arguments)[0]), (std::vector<float>{1, 2, 3}))
      << "and goes on";
}

TEST_F(PjrtExecutorOnFake, TellsTheMemory) {
  auto executor = make();
  const auto memory = executor.memory();
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->used, 1000);
  EXPECT_EQ(memory->limit, 5000);
  EXPECT_TRUE(memory->whole_device);
}

// Where the plugin does not know: the arrays that are there.
TEST_F(PjrtExecutorOnFake, CountsItsArrays) {
  auto executor = make();
  const ScopedEnvironment fault("FAKE_PJRT", "no_stats");
  const auto used = [&] { return executor.memory().value().used; };
  EXPECT_FALSE(executor.memory()->whole_device);
  EXPECT_EQ(used(), 0);
  const ArrayPtr first = upload(executor, {1, 2, 3});
  {
    const ArrayPtr second = upload(executor, {1});
    EXPECT_EQ(used(), 16);
  }
  EXPECT_EQ(used(), 12);
}

class PjrtExecutorCache : public PjrtExecutorOnFake {
 protected:
  // As another process would: with another executor.
  static void compile(int64_t expect_compiled, int64_t expect_cached,
                      const std::string& text = "outputs 1") {
    auto executor = make();
    const int before = compilations();
    const auto program = executor.compile_text(text, {{kThreeFloats}, {kThreeFloats}, {-1}});
    EXPECT_EQ(compilations() - before, expect_compiled);
    EXPECT_EQ(executor.compiled(), expect_compiled);
    EXPECT_EQ(executor.from_cache(), expect_cached);
    const auto results = program->run(std::vector<ArrayPtr>{upload(executor, {1, 2, 3})});
    EXPECT_EQ(download(executor, *results[0]), (std::vector<float>{1, 2, 3}));
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(folder_.path() / "adder/xla")) {
      files.push_back(file.path());
    }
    return files;
  }
};

TEST_F(PjrtExecutorCache, CompilesOnce) {
  compile(1, 0);
  compile(0, 1);
  compile(1, 0, "outputs 1 ");
  compile(0, 1);
  EXPECT_EQ(entries().size(), 2u);
}

TEST_F(PjrtExecutorCache, BelongsToAVersionAndItsFlags) {
  compile(1, 0);
  {
    const ScopedEnvironment version("FAKE_PJRT_VERSION", "2");
    compile(1, 0);
  }
  {
    const ScopedEnvironment flags("XLA_FLAGS", "--something");
    compile(1, 0);
  }
  compile(0, 1);
}

TEST_F(PjrtExecutorCache, ReplacesWhatCannotBeUsed) {
  compile(1, 0);
  {
    const ScopedEnvironment fault("FAKE_PJRT", "refuse_load");
    compile(1, 0);
  }
  compile(0, 1);
  ASSERT_EQ(entries().size(), 1u);
  std::ofstream(entries()[0], std::ios::binary | std::ios::in | std::ios::ate) << "more";
  compile(1, 0);
  compile(0, 1);
}

TEST_F(PjrtExecutorCache, IsNotForPluginsThatCannotSerialize) {
  const ScopedEnvironment fault("FAKE_PJRT", "no_serialize");
  compile(1, 0);
  compile(1, 0);
  EXPECT_FALSE(fs::exists(folder_.path() / "adder"));
}

TEST_F(PjrtExecutorCache, CanBeSwitchedOff) {
  const ScopedEnvironment off("ADDER_JIT_CACHE_MB", "0");
  compile(1, 0);
  compile(1, 0);
  EXPECT_FALSE(fs::exists(folder_.path() / "adder"));
}

}  // namespace
}  // namespace adder::xla
