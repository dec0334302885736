// `adder pull` against servers and networks that fail.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "hub_fixture.h"
#include "io/hub.h"

namespace adder {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

constexpr const char* kWeights = "model.safetensors";

// Applies to the store's answers for the weights; everything else stays honest.
class HubFaultTest : public HubTest {
 protected:
  // `count` answers from the first on, then honest ones.
  void break_store(int count, std::function<void(HttpTestResponse&)> change) {
    hub_.tamper_store = [count, change](const HttpTestRequest&, int nth,
                                        HttpTestResponse& response) {
      if (nth < count) change(response);
    };
  }
  Strings store_ranges() { return ranges(hub_.store().requests(), ""); }
  fs::path part() const { return directory_ / "model.safetensors.part"; }
  void expect_no_part() {
    EXPECT_FALSE(fs::exists(part()));
    EXPECT_FALSE(fs::exists(part().string() + ".json"));
    EXPECT_FALSE(exists(kWeights));
    EXPECT_EQ(find_pulled("owner/model"), std::nullopt);
  }
  // Leaves `size` bytes of the weights in NAME.part, as an interrupted run would.
  void interrupt_after(int64_t size) {
    hub_.forget_requests();
    options_.retry.attempts = 1;
    break_store(1, [&](HttpTestResponse& response) { response.cut_after = size; });
    EXPECT_HAS(pull_error(), "owner/model: model.safetensors: ");
    ASSERT_TRUE(fs::exists(part()));
    ASSERT_EQ(static_cast<int64_t>(fs::file_size(part())), size);
    options_.retry.attempts = 6;
    hub_.tamper_store = nullptr;
    hub_.forget_requests();
  }
};

TEST_F(HubFaultTest, ACutConnectionIsContinuedWhereItBroke) {
  break_store(3, [](HttpTestResponse& response) { response.cut_after = 70001; });
  Strings notes;
  options_.on_progress = [&](const PullProgress& progress) {
    if (progress.stage == PullProgress::Stage::kWaiting) notes.push_back(progress.note);
  };
  pull_model();
  expect_complete();
  EXPECT_EQ(store_ranges(), (Strings{"", "bytes=70001-", "bytes=140002-", "bytes=210003-"}));
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_HAS(notes[0], "model.safetensors: http://127.0.0.1:");
  EXPECT_HAS(notes[0], "next attempt in");
}

TEST_F(HubFaultTest, ABodyWithoutLengthThatEndsEarlyIsContinued) {
  break_store(1, [](HttpTestResponse& response) {
    response.no_length = true;
    response.cut_after = 1000;
  });
  pull_model();
  expect_complete();
  EXPECT_EQ(store_ranges(), (Strings{"", "bytes=1000-"}));
}

TEST_F(HubFaultTest, RangesMayComeInPieces) {
  hub_.tamper_store = [](const HttpTestRequest& request, int, HttpTestResponse& response) {
    if (request.header("range").empty()) response.cut_after = 100000;
    if (request.header("range") != "bytes=100000-") return;
    response.body.resize(50000);
    response.set("Content-Range", "bytes 100000-149999/300000");
  };
  pull_model();
  expect_complete();
  EXPECT_EQ(store_ranges(), (Strings{"", "bytes=100000-", "bytes=150000-"}));
}

TEST_F(HubFaultTest, TheNextRunContinuesTheLast) {
  interrupt_after(123457);
  EXPECT_EQ(find_pulled("owner/model"), std::nullopt);
  EXPECT_TRUE(exists("config.json"));
  const PullResult result = pull_model();
  EXPECT_EQ(result.downloaded, 1) << "the finished files stay";
  EXPECT_EQ(store_ranges(), Strings{"bytes=123457-"});
  EXPECT_EQ(hub_.file_requests().size(), 1u);
  expect_complete();
}

TEST_F(HubFaultTest, APartOfAnotherVersionIsNotContinued) {
  interrupt_after(1000);
  FakeRepo& repo = hub_.repos["owner/model"];
  repo.commit = std::string(40, 'b');
  repo.files[kWeights].content = noise(300000, 77);
  pull_model();
  EXPECT_EQ(store_ranges(), Strings{""});
  expect_complete();
}

TEST_F(HubFaultTest, WithoutListedHashesTheTagDecides) {
  hub_.list_blobs = false;
  interrupt_after(1000);
  pull_model();
  EXPECT_EQ(store_ranges(), Strings{"bytes=1000-"});
  expect_complete();
}

TEST_F(HubFaultTest, AChangedTagStartsOver) {
  hub_.list_blobs = hub_.list_commit = false;
  interrupt_after(1000);
  hub_.repos["owner/model"].files[kWeights].content = noise(300000, 78);
  pull_model();
  EXPECT_EQ(store_ranges(), (Strings{"bytes=1000-", ""}));
  expect_complete();
}

TEST_F(HubFaultTest, APartWithoutItsRecordOrLongerThanTheFileStartsOver) {
  interrupt_after(1000);
  fs::remove(part().string() + ".json");
  pull_model();
  EXPECT_EQ(store_ranges(), Strings{""});
  expect_complete();

  fs::remove(directory_ / kWeights);
  interrupt_after(1000);
  write_all(part(), noise(300001, 5));
  pull_model();
  EXPECT_EQ(store_ranges(), Strings{""});
  expect_complete();
}

TEST_F(HubFaultTest, AFullPartIsVerifiedWithoutARequest) {
  interrupt_after(1000);
  write_all(part(), content(kWeights));
  pull_model();
  EXPECT_TRUE(store_ranges().empty());
  expect_complete();
}

TEST_F(HubFaultTest, ADamagedPartIsFoundAndRemoved) {
  interrupt_after(1000);
  write_all(part(), noise(1000, 5));
  const std::string message = pull_error();
  EXPECT_HAS(message, "model.safetensors: SHA-256: expected " +
                          FakeHub::sha256_of(content(kWeights)) + ", found ");
  expect_no_part();
  pull_model();
  expect_complete();
}

TEST_F(HubFaultTest, AServerWithoutRangesSendsAllAgain) {
  hub_.tamper_store = [&](const HttpTestRequest&, int nth, HttpTestResponse& response) {
    response = {200, {}, content(kWeights)};
    if (nth == 0) response.cut_after = 1000;
  };
  pull_model();
  EXPECT_EQ(store_ranges(), (Strings{"", "bytes=1000-"}));
  expect_complete();
}

TEST_F(HubFaultTest, ARefusedOrWrongRangeStartsOver) {
  for (int kind = 0; kind < 3; ++kind) {
    fs::remove_all(directory_);
    interrupt_after(1000);
    hub_.tamper_store = [&](const HttpTestRequest& request, int, HttpTestResponse& response) {
      if (request.header("range").empty()) return;
      if (kind == 0) response = {416, {{"Content-Range", "bytes */300000"}}, "no"};
      if (kind == 1) response.set("Content-Range", "bytes 999-299999/300000");
      if (kind == 2) response.set("Content-Range", "bananas");
    };
    pull_model();
    EXPECT_EQ(store_ranges(), (Strings{"bytes=1000-", ""})) << kind;
    expect_complete();
    hub_.forget_requests();
  }
}

TEST_F(HubFaultTest, AServerThatRefusesEvenTheWholeFileIsGivenUp) {
  break_store(1000, [](HttpTestResponse& response) { response = {416, {}, ""}; });
  EXPECT_HAS(pull_error(), "answered 416");
}

TEST_F(HubFaultTest, WrongBytesAreNamedAndRemoved) {
  const std::string wrong = noise(300000, 55);
  break_store(1, [&](HttpTestResponse& response) { response.body = wrong; });
  const std::string message = pull_error();
  EXPECT_HAS(message, (directory_ / kWeights).string() + ": SHA-256: expected " +
                          FakeHub::sha256_of(content(kWeights)) + ", found " +
                          FakeHub::sha256_of(wrong));
  expect_no_part();
}

TEST_F(HubFaultTest, AWrongTagIsFoundWithoutListedHashes) {
  hub_.list_blobs = false;
  const std::string wrong(64, 'f');
  hub_.tamper = [&](const HttpTestRequest&, int, HttpTestResponse& response) {
    if (response.status == 302) response.set("X-Linked-ETag", "\"" + wrong + "\"");
  };
  EXPECT_HAS(pull_error(), "SHA-256: expected " + wrong + ", found ");
  expect_no_part();
}

TEST_F(HubFaultTest, APlainEtagOf64DigitsIsAHashToo) {
  hub_.list_blobs = false;
  const std::string wrong(64, 'E');
  hub_.tamper = [&](const HttpTestRequest& request, int, HttpTestResponse& response) {
    if (request.path().ends_with("config.json")) response.set("ETag", "\"" + wrong + "\"");
  };
  EXPECT_HAS(pull_error(), "config.json: SHA-256: expected " + std::string(64, 'e') + ", found ");
}

TEST_F(HubFaultTest, ATagAgainstTheListIsToldBeforeTheDownload) {
  hub_.tamper = [&](const HttpTestRequest&, int, HttpTestResponse& response) {
    if (response.status == 302) response.set("X-Linked-ETag", std::string(64, 'f'));
  };
  EXPECT_HAS(pull_error(), "(as listed), the server's tag says ffff");
  expect_no_part();
}

TEST_F(HubFaultTest, SizesThatContradictEachOtherAreNamed) {
  break_store(1000, [](HttpTestResponse& response) { response.body += "x"; });
  EXPECT_HAS(pull_error(), "size: expected 300000 bytes (as listed), the server sends 300001");
  expect_no_part();
  break_store(1000, [](HttpTestResponse& response) { response.announced = 5; });
  EXPECT_HAS(pull_error(), "size: expected 300000 bytes (as listed), the server sends 5");
  expect_no_part();
  hub_.list_blobs = false;
  EXPECT_HAS(pull_error(), "expected 300000 bytes (X-Linked-Size), the server sends 5");
  expect_no_part();
  hub_.list_blobs = true;
  hub_.tamper_store = nullptr;
  hub_.tamper = [](const HttpTestRequest&, int, HttpTestResponse& response) {
    if (response.status == 302) response.set("X-Linked-Size", "299999");
  };
  EXPECT_HAS(pull_error(), "size: expected 300000 bytes (as listed), the server sends 299999");
  expect_no_part();
}

TEST_F(HubFaultTest, BodiesOfAnotherSizeThanExpectedAreNamedAndRemoved) {
  break_store(1, [](HttpTestResponse& response) {
    response.chunked = true;
    response.body += "surplus";
  });
  EXPECT_HAS(pull_error(), "size: expected 300000 bytes, found at least 3");
  expect_no_part();
  hub_.tamper_store = [](const HttpTestRequest&, int, HttpTestResponse& response) {
    response.chunked = true;
    response.body.resize(1234);
  };
  EXPECT_HAS(pull_error(), "size: expected 300000 bytes, found 1234");
  expect_no_part();
}

TEST_F(HubFaultTest, AServerThatAlwaysCutsIsGivenUpAndThePartStays) {
  // Announces the whole, sends less each time; the honest range would get further.
  break_store(1000, [](HttpTestResponse& response) { response.cut_after = 10; });
  EXPECT_HAS(pull_error(), "(6 attempts)");
  EXPECT_EQ(fs::file_size(part()), 60u);
  EXPECT_EQ(store_ranges().size(), 6u);
}

TEST_F(HubFaultTest, RealProgressDoesNotUseUpTheAttempts) {
  hub_.repos["owner/model"].files[kWeights].content = noise(12 << 20, 8);
  break_store(1000, [](HttpTestResponse& response) { response.cut_after = (1 << 20) + 5; });
  pull_model();
  EXPECT_EQ(store_ranges().size(), 12u) << "more than the six attempts without progress";
  expect_complete();
}

TEST_F(HubFaultTest, ServerErrorsAreTriedAgain) {
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    fs::remove_all(directory_);
    hub_.forget_requests();
    int broken = 0;
    hub_.tamper = [&](const HttpTestRequest&, int, HttpTestResponse& response) {
      if (++broken <= 2) response = {status, {}, "try later"};
    };
    pull_model();
    EXPECT_EQ(hub_.server().requests()[1].target, hub_.server().requests()[2].target) << status;
    expect_complete();
  }
}

TEST_F(HubFaultTest, LastingServerErrorsEndWithTheStatus) {
  hub_.tamper = [](const HttpTestRequest&, int, HttpTestResponse& response) {
    response = {503, {}, ""};
  };
  EXPECT_HAS(pull_error(), "answered 503 (6 attempts)");
  EXPECT_EQ(hub_.server().requests().size(), 6u);
}

TEST_F(HubFaultTest, RetryAfterIsHonouredWithinReason) {
  hub_.tamper = [](const HttpTestRequest&, int nth, HttpTestResponse& response) {
    if (nth == 0) response = {429, {{"Retry-After", "1"}}, ""};
  };
  hub_.repos["owner/model"].files.erase("tokenizer.json");
  options_.on_progress = [](const PullProgress&) {};
  const auto start = std::chrono::steady_clock::now();
  hub_.list_commit = false;
  pull_model();
  // Three addresses, each asking for one second once.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));

  hub_.tamper = [](const HttpTestRequest&, int, HttpTestResponse& response) {
    response = {429, {{"Retry-After", "86400"}}, ""};
  };
  fs::remove_all(directory_);
  EXPECT_HAS(pull_error(), "answered 429; the server asks to come back in 86400 s");
}

TEST_F(HubFaultTest, RefusalsNameTheRemedy) {
  int status = 401;
  hub_.tamper = [&](const HttpTestRequest&, int, HttpTestResponse& response) {
    response = {status, {}, "no"};
  };
  EXPECT_HAS(pull_error(), "refused access (401)");
  EXPECT_HAS(pull_error(), "set HF_TOKEN to a token that may read it");
  options_.token = "hf_secret";
  status = 403;
  const std::string message = pull_error();
  EXPECT_HAS(message, "the token in HF_TOKEN may not read it");
  EXPECT_EQ(message.find("secret"), std::string::npos);
  status = 404;
  EXPECT_HAS(pull_error(), "owner/model: not found on http://127.0.0.1");
  EXPECT_HAS(pull_error(), "(404): no such repository, revision or file");
  status = 418;
  EXPECT_HAS(pull_error(), "answered 418");
}

TEST_F(HubFaultTest, ASilentServerTimesOutAndIsAskedAgain) {
  options_.http.stall_timeout_s = 1;
  break_store(1, [](HttpTestResponse& response) { response.hang_after = 5000; });
  pull_model();
  EXPECT_EQ(store_ranges(), (Strings{"", "bytes=5000-"}));
  expect_complete();
}

TEST_F(HubFaultTest, ASlowServerIsWaitedFor) {
  options_.http.stall_timeout_s = 1;
  break_store(1, [](HttpTestResponse& response) {
    response.drip_bytes = 10000;
    response.drip_pause_ms = 50;  // 1.5 s in all, longer than the time-out for silence
  });
  pull_model();
  EXPECT_EQ(store_ranges(), Strings{""});
  expect_complete();
}

TEST_F(HubFaultTest, CancellingKeepsThePartAndTheNextRunContinues) {
  std::atomic<bool> cancel{false};
  options_.cancel = &cancel;
  break_store(1, [](HttpTestResponse& response) { response.hang_after = 150000; });
  options_.on_progress = [&](const PullProgress& progress) {
    if (progress.file == kWeights && progress.file_done == 150000) cancel = true;
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_HAS(pull_error(), "cancelled; what was downloaded is kept");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  ASSERT_EQ(fs::file_size(part()), 150000u);
  hub_.forget_requests();
  cancel = false;
  options_.on_progress = nullptr;
  pull_model();
  EXPECT_EQ(store_ranges(), Strings{"bytes=150000-"});
  expect_complete();
}

TEST_F(HubFaultTest, CancellingEndsAPause) {
  std::atomic<bool> cancel{false};
  options_.cancel = &cancel;
  options_.retry.first_pause_ms = options_.retry.longest_pause_ms = 60000;
  break_store(1000, [](HttpTestResponse& response) { response = {503, {}, ""}; });
  options_.on_progress = [&](const PullProgress& progress) {
    if (progress.stage == PullProgress::Stage::kWaiting) cancel = true;
  };
  EXPECT_HAS(pull_error(), "cancelled");
}

TEST_F(HubFaultTest, AFullDiskIsNamed) {
  fs::create_directories(directory_);
  fs::create_symlink("/dev/full", part());  // every write ends in ENOSPC
  EXPECT_HAS(pull_error(), "model.safetensors.part: the disk is full after 0 of 300000 bytes");
}

TEST_F(HubFaultTest, TooLittleSpaceIsToldBeforeTheDownload) {
  hub_.tamper = [](const HttpTestRequest& request, int, HttpTestResponse& response) {
    if (!request.path().starts_with("/api/")) return;
    nlohmann::json list = nlohmann::json::parse(response.body);
    for (auto& file : list["siblings"]) {
      if (file["rfilename"] == kWeights) file["size"] = file["lfs"]["size"] = int64_t{1} << 50;
    }
    response.body = list.dump();
  };
  EXPECT_HAS(pull_error(), "not enough disk space: expected 1125899906");
  EXPECT_TRUE(hub_.file_requests().empty());
}

TEST_F(HubFaultTest, AnUnwritableDirectoryIsNamed) {
  write_all(root_ / "file", "x");
  options_.directory = (root_ / "file/below").string();
  EXPECT_HAS(pull_error(), "file/below: cannot make the directory");
}

TEST_F(HubFaultTest, RedirectsAreBounded) {
  hub_.tamper_store = [&](const HttpTestRequest& request, int, HttpTestResponse& response) {
    response = {302, {{"Location", request.target}}, ""};
  };
  EXPECT_HAS(pull_error(), "expected at most 8 redirects, got more");
  for (const char* target : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x", "http://"}) {
    hub_.tamper_store = [&](const HttpTestRequest&, int, HttpTestResponse& response) {
      response = {302, {{"Location", target}}, ""};
    };
    EXPECT_HAS(pull_error(), "redirects to something that is not an http(s) address") << target;
  }
  expect_no_part();
}

TEST_F(HubFaultTest, CompressedFilesAreRefused) {
  break_store(1, [](HttpTestResponse& response) { response.set("Content-Encoding", "gzip"); });
  EXPECT_HAS(pull_error(), "expected the plain file, got content-encoding 'gzip'");
}

TEST_F(HubFaultTest, ListsThatAreNoListsAreRefused) {
  const std::string sibling = R"({"sha": "x", "siblings": [{"rfilename": "model.safetensors", )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "malformed JSON"},
      {"<html>sign in</html>", "malformed JSON"},
      {"[]", "expected an object, got []"},
      {"{}", "expected a list of files, got none"},
      {R"({"siblings": {}})", "siblings"},
      {R"({"siblings": [1, 2]})", "field 'siblings[0]': expected an object, got 1"},
      {R"({"siblings": [{}]})", "refused the file name ''"},
      {sibling + R"("size": -1}]})", "expected a size of 0.."},
      {sibling + R"("size": 1e300}]})", "size"},
      {sibling + R"("size": 9223372036854775807}]})", "expected a size of 0.."},
      {sibling + R"("size": "many"}]})", "size"},
      {sibling + R"("size": 5, "lfs": {"size": 6}}]})", "listed with two sizes, 5 and 6"},
      {sibling + R"("lfs": {"sha256": "12"}}]})", "expected a SHA-256 of 64 hex digits, got '12'"},
      {std::string(1000, '['), "nested deeper than 64 levels"},
      {std::string((16 << 20) + 1, ' '), "expected an answer of at most 16777216 bytes"},
  };
  for (const auto& [answer, expected] : cases) {
    const std::string& text = answer;  // clang 14 lets no lambda capture a structured binding
    hub_.tamper = [&](const HttpTestRequest&, int, HttpTestResponse& response) {
      response.body = text;
    };
    const std::string message = pull_error();
    EXPECT_HAS(message, expected);
    EXPECT_LT(message.size(), 400u);
  }
  EXPECT_TRUE(hub_.file_requests().empty());
}

TEST_F(HubFaultTest, HugeHeadersAreRefused) {
  hub_.tamper = [](const HttpTestRequest&, int, HttpTestResponse& response) {
    for (int i = 0; i < 400; ++i) {
      response.headers.emplace_back("X-" + std::to_string(i), std::string(1000, 'x'));
    }
  };
  pull_error();
  EXPECT_TRUE(hub_.file_requests().empty());
}

TEST_F(HubFaultTest, DamagedRecordsCountAsNone) {
  pull_model();
  for (const char* text :
       {"", "{", "[]", R"({"format": 2})", R"({"format": 1, "repo": 5})",
        R"({"format": 1, "repo": "owner/model", "files": [{"name": "../x"}]})"}) {
    write_all(directory_ / kManifestName, text);
    EXPECT_EQ(find_pulled("owner/model"), std::nullopt) << text;
  }
  pull_model();
  expect_complete();
}

}  // namespace
}  // namespace adder
