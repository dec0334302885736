// What `adder pull` downloads, from where, and what it leaves alone.
#include "io/hub.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "hub_fixture.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

TEST(RepoName, IsOwnerSlashName) {
  for (const char* good :
       {"state-spaces/mamba-130m", "a/b", "EleutherAI/gpt-neox-20b", "A.b_c/1"}) {
    EXPECT_TRUE(is_repo_name(good)) << good;
  }
  for (const char* bad : {"", "a", "/a", "a/", "a/b/c", "../a", "a/..", "a..b/c", "a b/c", "a\\b/c",
                          "-a/b", ".a/b", "a/b\n", "\xc3\xa4/b", "a/%2e"}) {
    EXPECT_FALSE(is_repo_name(bad)) << bad;
  }
  EXPECT_FALSE(is_repo_name(std::string(97, 'a') + "/b"));
}

TEST_F(HubTest, DownloadsConfigTokenizerAndOneFormOfTheWeights) {
  const PullResult result = pull_model();
  expect_complete();
  EXPECT_FALSE(exists("pytorch_model.bin"));
  EXPECT_FALSE(exists("README.md"));
  EXPECT_EQ(result.directory, directory_);
  EXPECT_EQ(result.commit, std::string(40, 'a'));
  EXPECT_EQ(result.files, 3);
  EXPECT_EQ(result.downloaded, 3);
  EXPECT_EQ(result.bytes, static_cast<int64_t>(content("config.json").size()) + 3000 + 300000);
  EXPECT_EQ(result.offline, "");

  const auto requests = hub_.server().requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].target, "/api/models/owner/model?blobs=true");
  EXPECT_EQ(requests[1].target, "/owner/model/resolve/" + std::string(40, 'a') + "/config.json");
  EXPECT_EQ(requests[0].header("authorization"), "");

  const auto manifest = read_manifest((directory_ / kManifestName).string());
  ASSERT_TRUE(manifest);
  EXPECT_EQ(manifest->repo, "owner/model");
  EXPECT_EQ(manifest->commit, std::string(40, 'a'));
  ASSERT_EQ(manifest->files.size(), 3u);
  EXPECT_EQ(manifest->files.at("model.safetensors").sha256,
            FakeHub::sha256_of(content("model.safetensors")));
  EXPECT_EQ(manifest->files.at("config.json").sha256, FakeHub::sha256_of(content("config.json")));
}

TEST_F(HubTest, ACompleteCopyIsNotDownloadedAgain) {
  pull_model();
  hub_.forget_requests();
  const PullResult again = pull_model();
  EXPECT_EQ(again.downloaded, 0);
  EXPECT_EQ(again.files, 3);
  EXPECT_EQ(hub_.server().requests().size(), 1u) << "only the list of files";
  expect_complete();
}

TEST_F(HubTest, AServerWithoutHashesAndCommitIsTakenByNames) {
  hub_.list_blobs = hub_.list_commit = false;
  pull_model();
  expect_complete();
  EXPECT_EQ(hub_.file_requests()[0].target, "/owner/model/resolve/main/config.json");
  hub_.forget_requests();
  EXPECT_EQ(pull_model().downloaded, 0);
  EXPECT_TRUE(hub_.file_requests().empty());
}

TEST_F(HubTest, AMissingOrDamagedFileIsDownloadedAgain) {
  pull_model();
  fs::resize_file(directory_ / "model.safetensors", 100);
  EXPECT_EQ(find_pulled("owner/model"), std::nullopt);
  fs::remove(directory_ / "config.json");
  EXPECT_EQ(pull_model().downloaded, 2);
  expect_complete();
}

TEST_F(HubTest, ANewCommitBringsOnlyWhatChanged) {
  pull_model();
  hub_.forget_requests();
  FakeRepo& repo = hub_.repos["owner/model"];
  repo.commit = std::string(40, 'b');
  repo.files["config.json"].content = R"({"model_type": "mamba", "vocab_size": 50288})";
  const PullResult result = pull_model();
  EXPECT_EQ(result.downloaded, 1);
  EXPECT_EQ(result.commit, std::string(40, 'b'));
  ASSERT_EQ(hub_.file_requests().size(), 1u);
  expect_complete();
}

TEST_F(HubTest, FilesThatANewCommitDropsDoNotStayBehind) {
  pull_model();
  FakeRepo& repo = hub_.repos["owner/model"];
  repo.commit = std::string(40, 'b');
  repo.files.erase("model.safetensors");
  write_all(directory_ / "notes.txt", "mine");
  pull_model();
  EXPECT_FALSE(exists("model.safetensors"));
  EXPECT_TRUE(read_all(directory_ / "pytorch_model.bin") == content("pytorch_model.bin"));
  EXPECT_TRUE(exists("notes.txt")) << "not ours to remove";
}

TEST_F(HubTest, AskedRevisionIsEscapedAndRecorded) {
  options_.revision = "refs/pr/1";
  hub_.list_commit = false;
  hub_.tamper = [&](const HttpTestRequest& request, int, HttpTestResponse& response) {
    if (request.path() == "/owner/model/resolve/refs%2Fpr%2F1/config.json") {
      response = {200, {}, content("config.json")};
    }
  };
  EXPECT_HAS(pull_error(), "owner/model: tokenizer.json: not found");
  EXPECT_EQ(hub_.server().requests()[0].target,
            "/api/models/owner/model/revision/refs%2Fpr%2F1?blobs=true");
  EXPECT_TRUE(exists("config.json"));
}

TEST_F(HubTest, AMirrorThatKnowsNoCommitsIsAskedByBranch) {
  hub_.tamper = [](const HttpTestRequest& request, int, HttpTestResponse& response) {
    if (request.path().find("/resolve/aaaa") != std::string::npos) response = {404, {}, ""};
  };
  pull_model();
  expect_complete();
}

TEST_F(HubTest, ShardsAreThoseOfTheIndex) {
  FakeRepo& repo = hub_.repos["owner/model"];
  repo.files["model-00001-of-00002.safetensors"] = {noise(5000, 5), true};
  repo.files["model-00002-of-00002.safetensors"] = {noise(6000, 6), true};
  repo.files["model-stray.safetensors"] = {noise(10, 7), true};
  repo.files["model.safetensors.index.json"] = {
      R"({"metadata": {"total_size": 11000}, "weight_map": {
          "a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
          "c": "model-00002-of-00002.safetensors"}})"};
  repo.files.erase("model.safetensors");
  EXPECT_EQ(pull_model().files, 5);
  EXPECT_TRUE(exists("model-00001-of-00002.safetensors"));
  EXPECT_TRUE(exists("model-00002-of-00002.safetensors"));
  EXPECT_FALSE(exists("model-stray.safetensors"));
  EXPECT_FALSE(exists("pytorch_model.bin"));
  EXPECT_TRUE(find_pulled("owner/model"));
  EXPECT_EQ(pull_model().downloaded, 0);

  repo.commit = std::string(40, 'b');
  repo.files["model.safetensors.index.json"] = {R"({"weight_map": {"a": "other.safetensors"}})"};
  EXPECT_HAS(pull_error(), "names the shard 'other.safetensors', which owner/model does not hold");
  EXPECT_EQ(find_pulled("owner/model"), std::nullopt) << "a mixture of two revisions";
}

TEST_F(HubTest, HostileShardNamesAreRefused) {
  FakeRepo& repo = hub_.repos["owner/model"];
  repo.files.erase("model.safetensors");
  for (const char* name : {"../../evil.safetensors", "/tmp/evil.safetensors", "a\\\\b.safetensors",
                           ".adder-pull.json", "config.json", ""}) {
    repo.commit = std::string(40, repo.commit[0] == 'a' ? 'b' : 'a');
    repo.files["model.safetensors.index.json"] = {std::string(R"({"weight_map": {"a": ")") + name +
                                                  "\"}}"};
    EXPECT_HAS(pull_error(), "model.safetensors.index.json: ");
  }
  EXPECT_FALSE(fs::exists(root_ / "cache/models/evil.safetensors"));
}

TEST_F(HubTest, HostileNamesInTheListAreRefused) {
  for (const char* name :
       {"../evil", "a/../../evil", "/etc/evil", "a\\b", "a//b", "./a", "a/.", "a\nb", ""}) {
    hub_.repos["owner/model"].files.clear();
    hub_.repos["owner/model"].files["model.safetensors"] = {"x", true};
    hub_.repos["owner/model"].files[name] = {"evil"};
    EXPECT_HAS(pull_error(), "refused the file name") << name;
  }
  EXPECT_TRUE(hub_.file_requests().empty());
}

TEST_F(HubTest, StateSpacesModelsGetTheNeoxTokenizer) {
  const std::string tokenizer = noise(2000, 9);
  hub_.repos["EleutherAI/gpt-neox-20b"].files["tokenizer.json"] = {tokenizer};
  hub_.repos["EleutherAI/gpt-neox-20b"].files["model.safetensors"] = {"x", true};
  FakeRepo& repo = hub_.repos["state-spaces/mamba"];
  repo.files["config.json"] = {R"({"d_model": 768, "n_layer": 24, "vocab_size": 50277})"};
  repo.files["pytorch_model.bin"] = {noise(1000, 3), true};
  hub_.repos["someone/tuned"] = repo;  // told by its config
  hub_.repos["someone/other"] = repo;
  hub_.repos["someone/other"].files["config.json"] = {R"({"d_model": 768, "vocab_size": 32000})"};

  for (const char* name : {"state-spaces/mamba", "someone/tuned"}) {
    EXPECT_EQ(pull(name, options_).files, 3) << name;
    EXPECT_TRUE(read_all(*find_pulled(name) + "/tokenizer.json") == tokenizer) << name;
    hub_.forget_requests();
    EXPECT_EQ(pull(name, options_).downloaded, 0) << name;
    EXPECT_EQ(hub_.server().requests().size(), 1u) << name;
  }
  EXPECT_EQ(pull("someone/other", options_).files, 2);

  // Once the repository has its own, that one counts.
  hub_.repos["state-spaces/mamba"].files["tokenizer.json"] = {"{}"};
  EXPECT_EQ(pull("state-spaces/mamba", options_).downloaded, 1);
  EXPECT_EQ(read_all(*find_pulled("state-spaces/mamba") + "/tokenizer.json"), "{}");
}

TEST_F(HubTest, AMissingNeoxTokenizerIsAnError) {
  hub_.repos["state-spaces/mamba"].files["config.json"] = {R"({"d_model": 768})"};
  hub_.repos["state-spaces/mamba"].files["pytorch_model.bin"] = {"x", true};
  EXPECT_HAS(pull_error("state-spaces/mamba"),
             "EleutherAI/gpt-neox-20b: tokenizer.json: not found");
}

TEST_F(HubTest, TheTokenIsSentToTheEndpointAlone) {
  options_.token = "hf_secret";
  pull_model();
  for (const auto& request : hub_.server().requests()) {
    EXPECT_EQ(request.header("authorization"), "Bearer hf_secret") << request.target;
  }
  ASSERT_FALSE(hub_.store().requests().empty());
  for (const auto& request : hub_.store().requests()) {
    EXPECT_EQ(request.header("authorization"), "") << request.target;
  }
}

TEST_F(HubTest, ARedirectBackDoesNotCarryTheTokenAgain) {
  options_.token = "hf_secret";
  hub_.tamper_store = [&](const HttpTestRequest& request, int, HttpTestResponse& response) {
    if (request.target.find("bounced") == std::string::npos) {
      response = {302, {{"Location", hub_.url() + "/elsewhere"}}, ""};
    }
  };
  hub_.tamper = [&](const HttpTestRequest& request, int, HttpTestResponse& response) {
    if (request.path() == "/elsewhere") response = {200, {}, content("model.safetensors")};
  };
  pull_model();
  const auto requests = hub_.server().requests();
  EXPECT_EQ(requests.back().target, "/elsewhere");
  EXPECT_EQ(requests.back().header("authorization"), "");
}

TEST_F(HubTest, ATokenThatCouldBreakOutOfItsHeaderIsRefused) {
  options_.token = "hf_secret\r\nX-Evil: 1";
  const std::string message = pull_error();
  EXPECT_HAS(message, "HF_TOKEN: expected visible ASCII");
  EXPECT_EQ(message.find("secret"), std::string::npos);
  EXPECT_TRUE(hub_.server().requests().empty());
}

TEST_F(HubTest, TellsBadArguments) {
  EXPECT_HAS(pull_error("model"), "expected owner/name");
  EXPECT_HAS(pull_error("../x/model"), "expected owner/name");
  options_.endpoint = "ftp://example.org";
  EXPECT_HAS(pull_error(), "address 'ftp://example.org': expected http(s)");
  options_.endpoint = "http://user:hush@127.0.0.1";
  const std::string message = pull_error();
  EXPECT_HAS(message, "without user name");
  EXPECT_EQ(message.find("hush"), std::string::npos);
}

TEST_F(HubTest, AGivenDirectoryIsUsedAndBelongsToOneRepository) {
  options_.directory = (root_ / "here").string();
  EXPECT_EQ(pull_model().directory, options_.directory);
  EXPECT_TRUE(fs::exists(root_ / "here/model.safetensors"));
  EXPECT_EQ(find_pulled("owner/model"), std::nullopt);
  hub_.repos["owner/second"] = hub_.repos["owner/model"];
  EXPECT_HAS(pull_error("owner/second"), "holds a copy of owner/model");
}

TEST_F(HubTest, AFileThatIsAlreadyThereIsTakenByItsHash) {
  fs::create_directories(directory_);
  write_all(directory_ / "model.safetensors", content("model.safetensors"));
  pull_model();
  EXPECT_TRUE(ranges(hub_.file_requests(), "model.safetensors").empty());
  expect_complete();
}

TEST_F(HubTest, AFileThatIsAlreadyThereButOtherIsReplaced) {
  fs::create_directories(directory_);
  write_all(directory_ / "model.safetensors", noise(300000, 99));
  pull_model();
  expect_complete();
}

TEST_F(HubTest, OneDownloadPerDirectoryAtATime) {
  fs::create_directories(directory_);
  const int fd = open((directory_ / kLockName).c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_HAS(pull_error(), "another adder pull is at work in this directory");
  close(fd);
  pull_model();
  expect_complete();
}

TEST_F(HubTest, WithoutNetworkACompleteCopyIsEnough) {
  pull_model();
  hub_.server().stop();
  const PullResult result = pull_model();
  EXPECT_HAS(result.offline, "127.0.0.1");
  EXPECT_EQ(result.downloaded, 0);
  EXPECT_EQ(result.files, 3);

  options_.revision = "v2";
  EXPECT_HAS(pull_error(), "owner/model: http://127.0.0.1");
  options_.revision = "main";
  fs::remove(directory_ / "config.json");
  EXPECT_HAS(pull_error(), "owner/model: http://127.0.0.1");
}

TEST_F(HubTest, ModelArgumentsArePathsThenRepositories) {
  EXPECT_EQ(resolve_model_path(root_.string()), root_.string());
  try {
    resolve_model_path("owner/model");
    FAIL();
  } catch (const Error& error) {
    EXPECT_HAS(error.what(), "is not downloaded; run: adder pull owner/model");
  }
  pull_model();
  EXPECT_EQ(resolve_model_path("owner/model"), directory_.string());
  for (const char* missing : {"no/such/path.safetensors", "/none", "none"}) {
    try {
      resolve_model_path(missing);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), std::string(missing) + ": no such file or directory");
    }
  }
}

TEST_F(HubTest, AGgufRepositoryGivesItsFile) {
  FakeRepo& repo = hub_.repos["owner/model"];
  repo.files.clear();
  repo.files["model-q4.gguf"] = {noise(100, 1), true};
  pull_model();
  EXPECT_EQ(resolve_model_path("owner/model"), directory_ / "model-q4.gguf");

  repo.files["model-q8.gguf"] = {noise(100, 2), true};
  EXPECT_HAS(pull_error(), "holds 2 GGUF files; choose one with --include");
  options_.include = {"*q8*"};
  pull_model();
  EXPECT_TRUE(exists("model-q4.gguf")) << "still what the repository holds";
  EXPECT_TRUE(exists("model-q8.gguf"));
  EXPECT_THROW(resolve_model_path("owner/model"), Error);
  options_.include = {"*q5*"};
  EXPECT_HAS(pull_error(), "no file matches '*q5*'");
}

TEST_F(HubTest, RepositoriesWithoutAModelAreRefusedBeforeTheDownload) {
  FakeRepo& repo = hub_.repos["owner/model"];
  repo.files.erase("config.json");
  EXPECT_HAS(pull_error(), "expected config.json or params.json, got neither");
  repo.files.clear();
  repo.files["config.json"] = {"{}"};
  EXPECT_HAS(pull_error(), "expected model.safetensors, consolidated.safetensors");
  EXPECT_TRUE(hub_.file_requests().empty());
}

TEST_F(HubTest, ProgressCountsEveryByteOnce) {
  int64_t last = 0, finished = 0;
  options_.on_progress = [&](const PullProgress& progress) {
    EXPECT_GE(progress.done, last);
    last = progress.done;
    EXPECT_EQ(progress.total, static_cast<int64_t>(content("config.json").size()) + 303000);
    EXPECT_LE(progress.file_done, progress.file_total);
    finished += progress.stage == PullProgress::Stage::kFinished;
    EXPECT_EQ(progress.received, progress.done);
  };
  pull_model();
  EXPECT_EQ(last, static_cast<int64_t>(content("config.json").size()) + 303000);
  EXPECT_EQ(finished, 3);
}

}  // namespace
}  // namespace adder
