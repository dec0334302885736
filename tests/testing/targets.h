// What the backend tests run on: every backend of this build, and the CPU one with every
// instruction set that this machine can run. In the program of tests/cuda it is the CUDA backend
// under the emulator, and the GPU if there is one; in that of tests/xla the XLA backend on its
// interpreter, or on the device that ADDER_XLA_DEVICE names, such as xla:cpu.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>  // setenv is POSIX, <cstdlib> need not have it

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/registry.h"
#include "core/error.h"
#ifdef ADDER_CUDA_EMULATED
#include "backends/cuda/cuda_backend.h"
#endif

namespace adder::testing {

struct Target {
  std::string backend;
  std::string isa;  // empty: the backend has no choice of them

  std::unique_ptr<Backend> make(int threads = 2) const {
#ifdef ADDER_CUDA_EMULATED
    if (backend == "emulator") return cuda_emulated::make_backend(0);
#endif
    if (isa.empty()) return make_backend(backend, threads);
    setenv("ADDER_FORCE_ISA", isa.c_str(), 1);
    auto made = make_backend(backend, threads);
    unsetenv("ADDER_FORCE_ISA");
    return made;
  }
};

inline std::string xla_device() {
  const char* named = std::getenv("ADDER_XLA_DEVICE");
  return named == nullptr ? "xla:interpreter" : named;
}

// Whether there is a GPU that this build can use.
inline bool has_gpu() {
  const auto names = available_backends();
  if (std::find(names.begin(), names.end(), "cuda") == names.end()) return false;
  try {
    make_backend("cuda");
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline std::vector<Target> all_targets() {
  std::vector<Target> targets;
#ifdef ADDER_CUDA_EMULATED
  targets.push_back({"emulator", ""});
  if (has_gpu()) targets.push_back({"cuda", ""});
  return targets;
#elif defined(ADDER_XLA_CONTRACT)
  targets.push_back({xla_device(), ""});
  return targets;
#endif
  for (const std::string& backend : available_backends()) {
    if (backend == "cpu") {
      for (const std::string& isa : cpu_isas()) targets.push_back({backend, isa});
      continue;
    }
    if (backend != "cuda" && backend != "xla") targets.push_back({backend, ""});
  }
  return targets;
}

// Names of parameterised tests may hold letters, digits and underscores only.
inline std::string target_name(const ::testing::TestParamInfo<Target>& info) {
  std::string name = info.param.backend + (info.param.isa.empty() ? "" : "_") + info.param.isa;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

inline std::string isa_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

class BackendTest : public ::testing::TestWithParam<Target> {
 protected:
  // The definition of right, and the one under test.
  std::unique_ptr<Backend> ref_ = make_backend("ref");
  std::unique_ptr<Backend> backend_ = GetParam().make();

  // As they are, so that products with them round activations.
  static bool keeps_block_formats() { return !GetParam().backend.starts_with("xla"); }
};

}  // namespace adder::testing

// Runs the tests of a fixture derived from BackendTest on every target.
#define ADDER_TEST_ALL_TARGETS(fixture)                                                        \
  INSTANTIATE_TEST_SUITE_P(All, fixture, ::testing::ValuesIn(::adder::testing::all_targets()), \
                           ::adder::testing::target_name)
