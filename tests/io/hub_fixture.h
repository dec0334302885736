// A fake hub, an empty directory and fast retries for the tests of the download.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/hub.h"
#include "io/hub_manifest.h"
#include "testing/fake_hub.h"

#define EXPECT_HAS(text, part) \
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, std::string(part), std::string(text))

namespace adder {

using testing::FakeHub;
using testing::FakeRepo;
using testing::HttpTestRequest;
using testing::HttpTestResponse;

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_all(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Bytes without a period that a shifted or repeated piece could hide in.
inline std::string noise(size_t size, uint32_t seed) {
  std::string out(size, '\0');
  for (char& c : out) {
    seed = seed * 1664525 + 1013904223;
    c = static_cast<char>(seed >> 24);
  }
  return out;
}

class HubTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "adder_hub_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    setenv("ADDER_CACHE", (root_ / "cache").c_str(), 1);
    directory_ = root_ / "cache/models/owner/model";

    FakeRepo& repo = hub_.repos["owner/model"];
    repo.files["config.json"] = {R"({"model_type": "mamba", "vocab_size": 50280})"};
    repo.files["tokenizer.json"] = {noise(3000, 1)};
    repo.files["model.safetensors"] = {noise(300000, 2), true};
    repo.files["pytorch_model.bin"] = {noise(1000, 3), true};
    repo.files["README.md"] = {"# model"};

    options_.endpoint = hub_.url();
    options_.http.connect_timeout_s = 5;
    options_.http.stall_timeout_s = 5;
    options_.retry.first_pause_ms = 1;
    options_.retry.longest_pause_ms = 4;
  }
  void TearDown() override {
    unsetenv("ADDER_CACHE");
    std::filesystem::remove_all(root_);
  }

  PullResult pull_model() { return pull("owner/model", options_); }

  // The message of the error that pulling must end in.
  std::string pull_error(const std::string& repo = "owner/model") {
    try {
      pull(repo, options_);
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "the download of " << repo << " went through";
    return {};
  }

  const std::string& content(const std::string& name) {
    return hub_.repos["owner/model"].files[name].content;
  }
  void expect_complete() {
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
      EXPECT_TRUE(read_all(directory_ / name) == content(name)) << name;
    }
    EXPECT_EQ(find_pulled("owner/model"), directory_.string());
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
    }
  }
  bool exists(const char* name) const { return std::filesystem::exists(directory_ / name); }

  // Of the requests for `path`'s end, in order: the Range headers.
  static std::vector<std::string> ranges(const std::vector<HttpTestRequest>& requests,
                                         const std::string& path_end) {
    std::vector<std::string> out;
    for (const HttpTestRequest& request : requests) {
      if (request.path().ends_with(path_end)) out.push_back(request.header("range"));
    }
    return out;
  }

  FakeHub hub_;
  PullOptions options_;
  std::filesystem::path root_, directory_;
};

}  // namespace adder
