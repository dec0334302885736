#include "backends/xla/pjrt_plugin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "backends/xla/executor.h"
#include "testing/fake_pjrt.h"

namespace adder::xla {
namespace {

namespace fs = std::filesystem;

// What make_pjrt_executor says about a plugin, on one line.
std::string refusal(const std::string& name) {
  try {
    make_pjrt_executor(name);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
    const std::string message = e.what();
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message;
  }
  return "";
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// A plugin is loaded once: what it does when loaded takes a copy that has not been.
class PjrtPlugin : public ::testing::Test {
 protected:
  std::string copy(const std::string& name) {
    const fs::path to = folder_.path() / name;
    fs::create_directories(to.parent_path());
    fs::copy_file(kFakePlugin, to);
    return to.string();
  }

  ScopedFolder folder_;
  ScopedEnvironment no_environment_{"VIRTUAL_ENV", nullptr};
  ScopedEnvironment no_conda_{"CONDA_PREFIX", nullptr};
  ScopedEnvironment no_home_{"HOME", folder_.path().string() + "/home"};
  ScopedEnvironment no_plugin_{"ADDER_PJRT_PLUGIN", nullptr};
};

TEST_F(PjrtPlugin, IsLoadedOnce) {
  const Plugin& plugin = load_plugin(kFakePlugin);
  EXPECT_EQ(plugin.file, fs::path(kFakePlugin).filename());
  EXPECT_EQ(&load_plugin(kFakePlugin), &plugin);
  const fs::path link = folder_.path() / "link.so";
  fs::create_symlink(kFakePlugin, link);
  EXPECT_EQ(&load_plugin(link.string()), &plugin);
  EXPECT_NE(load_plugin(copy("other.so")).api, plugin.api);
}

TEST_F(PjrtPlugin, SaysWhatItIs) {
  EXPECT_EQ(make_pjrt_executor(kFakePlugin)->description(),
            "xla, fake (" + fs::path(kFakePlugin).filename().string() + "), abacus");
}

TEST_F(PjrtPlugin, IsFoundInAPythonEnvironment) {
  const std::string venv = (folder_.path() / "venv").string();
  const std::string cpu = "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so";
  const std::string newer = copy("venv/lib/python3.11/site-packages/" + cpu);
  const std::string older = copy("venv/lib/python3.9/site-packages/" + cpu);
  const std::string other = copy(
      "conda/lib/python3.9/site-packages/xla_plugins/xla_cpu_pjrt/"
      "xla_cpu_pjrt.so");
  const std::string tpu = copy("conda/lib/python3.9/site-packages/libtpu/libtpu.so");
  const ScopedEnvironment one("VIRTUAL_ENV", venv);
  const ScopedEnvironment two("CONDA_PREFIX", (folder_.path() / "conda").string());
  const auto cpus = plugin_candidates("cpu");
  ASSERT_GE(cpus.size(), 3u);
  EXPECT_EQ(cpus[0], newer);
  EXPECT_EQ(cpus[1], older);
  EXPECT_NE(std::find(cpus.begin(), cpus.end(), other), cpus.end());
  EXPECT_EQ(plugin_candidates("tpu").at(0), tpu);
  const std::string cuda = copy(
      "conda/lib/python3.9/site-packages/jax_plugins/xla_cuda12/"
      "xla_cuda_plugin.so");
  const bool has_tpu = fs::exists("/dev/accel0") || fs::exists("/dev/vfio/0");
  const auto all = plugin_candidates("");
  EXPECT_EQ(all.at(0), has_tpu ? tpu : cuda) << "an accelerator first, a TPU where there is one";
  EXPECT_NE(std::find(all.begin(), all.end(), newer), all.end());
  EXPECT_TRUE(mentions(make_pjrt_executor("cpu")->description(), "pjrt_c_api_cpu_plugin.so"));
}

TEST_F(PjrtPlugin, IsTakenFromTheEnvironmentFirst) {
  const ScopedEnvironment venv("VIRTUAL_ENV", folder_.path().string());
  const std::string tpu = copy("lib/python3.11/site-packages/libtpu/libtpu.so");
  {
    const ScopedEnvironment plugin("ADDER_PJRT_PLUGIN", kFakePlugin);
    EXPECT_EQ(plugin_candidates(""), std::vector<std::string>{kFakePlugin});
    EXPECT_EQ(plugin_candidates("tpu").at(0), tpu) << "a name is looked up";
  }
  const ScopedEnvironment several("ADDER_PJRT_PLUGIN", "/nowhere/a.so:tpu:" + kFakePlugin + ":");
  EXPECT_EQ(plugin_candidates(""), (std::vector<std::string>{"/nowhere/a.so", tpu, kFakePlugin}));
  EXPECT_TRUE(mentions(make_pjrt_executor("")->description(), "libtpu.so"))
      << "the first that can be used";
}

TEST_F(PjrtPlugin, MissingSaysWhatWasLookedFor) {
  const ScopedEnvironment venv("VIRTUAL_ENV", folder_.path().string());
  fs::create_directories(folder_.path() / "lib/python3.11/site-packages");
  const std::string message = refusal("cuda");
  if (message.find("installed") == message.npos) GTEST_SKIP() << "this machine has one";
  EXPECT_TRUE(mentions(message, "no PJRT plugin for cuda is installed")) << message;
  EXPECT_TRUE(mentions(message, "xla_cuda13/xla_cuda_plugin.so, ")) << message;
  EXPECT_TRUE(mentions(message, " in " + folder_.path().string())) << message;
  EXPECT_TRUE(mentions(message, "ADDER_PJRT_PLUGIN")) << message;
  EXPECT_TRUE(mentions(refusal("/nowhere/a.so"), "expected a PJRT plugin at /nowhere/a.so"));
  EXPECT_TRUE(mentions(refusal("npu"), "unknown PJRT plugin 'npu': expected cpu, cuda, tpu"));
  EXPECT_TRUE(mentions(refusal(folder_.path().string()), "cannot read the plugin"));
  const ScopedEnvironment list("ADDER_PJRT_PLUGIN", "/nowhere/a.so:/nowhere/b.so");
  const std::string both = refusal("");
  EXPECT_TRUE(mentions(both, "none of 2 PJRT plugins")) << both;
  EXPECT_TRUE(mentions(both, "/nowhere/a.so") && mentions(both, "/nowhere/b.so")) << both;
}

TEST_F(PjrtPlugin, DamagedIsRefused) {
  const std::string path = copy("damaged.so");
  // Most of what is mapped is cut off.
  for (const unsigned left : {9000u, 4096u, 100u, 63u, 0u}) {
    fs::resize_file(path, left);
    EXPECT_TRUE(mentions(refusal(path), path + ": not a plugin, or a damaged one")) << left;
  }
  std::ofstream(path) << std::string(5000, '#');
  EXPECT_TRUE(mentions(refusal(path), "expected a shared library"));
}

TEST_F(PjrtPlugin, OtherLibraryIsRefused) {
  Dl_info info = {};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(&::getenv), &info), 0);  // of the C library
  EXPECT_TRUE(mentions(refusal(info.dli_fname), "it has no symbol GetPjrtApi"));
}

TEST_F(PjrtPlugin, WrongVersionIsRefused) {
  {
    const ScopedEnvironment fault("FAKE_PJRT", "old");
    const std::string message = refusal(copy("old.so"));
    EXPECT_TRUE(mentions(message, "expected at least 0.81 and below 1.0, got 0.80")) << message;
  }
  {
    const ScopedEnvironment fault("FAKE_PJRT", "future");
    EXPECT_TRUE(mentions(refusal(copy("future.so")), "below 1.0, got 1.81"));
  }
  const ScopedEnvironment fault("FAKE_PJRT", "empty");
  EXPECT_TRUE(mentions(refusal(copy("empty.so")), "leaves out what running a program takes"));
}

TEST_F(PjrtPlugin, FailuresToBeginAreToldInItsWords) {
  {
    const ScopedEnvironment fault("FAKE_PJRT", "initialize");
    EXPECT_TRUE(mentions(refusal(copy("initialize.so")), "initialize.so: fake: no initialization"));
  }
  {
    const ScopedEnvironment fault("FAKE_PJRT", "client");
    EXPECT_TRUE(
        mentions(refusal(kFakePlugin), "cannot use " + kFakePlugin + ": fake: no device is here"));
  }
  const ScopedEnvironment fault("FAKE_PJRT", "no_device");
  EXPECT_TRUE(mentions(refusal(kFakePlugin), "expected at least one device, got none"));
  EXPECT_EQ(fake_counter(kFakePlugin, "fake_pjrt_live_objects"), 0);
}

}  // namespace
}  // namespace adder::xla
