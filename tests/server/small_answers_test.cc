// The page, embeddings, sessions and states as they are sent.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/embedding_response.h"
#include "server/json.h"
#include "server/state_response.h"
#include "server/web_page.h"

namespace adder {
namespace {

TEST(ApiErrors, HaveTheStatusOfTheirCode) {
  const auto status = [](ErrorCode code) { return to_api_error(Error(code, "x")).status(); };
  EXPECT_EQ(status(ErrorCode::kBadInput), 400);
  EXPECT_EQ(status(ErrorCode::kUnsupported), 400);
  EXPECT_EQ(status(ErrorCode::kNotFound), 404);
  EXPECT_EQ(status(ErrorCode::kConflict), 409);
  EXPECT_EQ(status(ErrorCode::kBusy), 429);
  EXPECT_EQ(status(ErrorCode::kTimeout), 408);
  EXPECT_EQ(status(ErrorCode::kIo), 500);
  EXPECT_EQ(status(ErrorCode::kInternal), 500);
}

TEST(ApiErrors, NameTheFieldThatTheLibraryNames) {
  const auto param = [](ErrorCode code, const char* message) {
    return to_api_error(Error(code, message)).param();
  };
  EXPECT_EQ(param(ErrorCode::kBadInput, "tokens: expected 0 to 4, got 9"), "tokens");
  EXPECT_EQ(param(ErrorCode::kBadInput, "/a/b.session: damaged"), "");
  EXPECT_EQ(param(ErrorCode::kBadInput, "nothing of the kind"), "");
  EXPECT_EQ(param(ErrorCode::kInternal, "tokens: a bug"), "");
}

TEST(ApiErrors, AreJsonWhateverTheyQuote) {
  const Json body = Json::parse(error_body(ApiError(400, "got '\xff\"\n'", "a.b", "c")));
  EXPECT_EQ(body["error"]["message"], "got '\xef\xbf\xbd\"\n'");
  EXPECT_EQ(body["error"]["param"], "a.b");
  EXPECT_EQ(body["error"]["code"], "c");
  EXPECT_TRUE(Json::parse(error_body(ApiError(500, "x")))["error"]["param"].is_null());
}

TEST(WebPage, MayOnlyRunWhatItContains) {
  const std::string policy =
      content_security_policy("<!-- one <script> -->\n<script>\nabc</script>\n<style>x</style>");
  EXPECT_NE(policy.find("script-src 'sha256-"), std::string::npos);
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  // printf '\nabc' | openssl dgst -sha256 -binary | base64
  EXPECT_NE(policy.find("'sha256-8505v8mSh7hIeA1BEOtmPw58NErkH0ajkMQTW4ncJ1Y='"), std::string::npos)
      << policy;
  EXPECT_NE(content_security_policy("").find("script-src 'none'; style-src 'none'"),
            std::string::npos);
}

TEST(WebPage, IsCompiledIn) {
  const WebPage& page = web_page();
  EXPECT_TRUE(page.html.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.html.ends_with("</html>\n"));
  EXPECT_EQ(page.etag.size(), 24u);
  EXPECT_EQ(content_security_policy(page.html).find("'none'; style-src"), std::string::npos);
}

TEST(Embeddings, AreListsOrBase64) {
  const std::vector<std::vector<float>> rows = {{1.0f, -0.5f}, {0.1f, 0.0f}};
  const Json body = Json::parse(embeddings_body("m", rows, 7, false));
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["usage"]["total_tokens"], 7);
  EXPECT_EQ(body["data"][1]["index"], 1);
  EXPECT_EQ(body["data"][1]["embedding"][0].get<float>(), 0.1f);
  const Json packed = Json::parse(embeddings_body("m", rows, 7, true));
  EXPECT_EQ(packed["data"][0]["embedding"], "AACAPwAAAL8=");
  EXPECT_EQ(base64_of(std::vector<float>{1.0f}), "AACAPw==");
  EXPECT_EQ(base64_of({}), "");
}

TEST(Sessions, HaveAllTheirFields) {
  SessionInfo info;
  info.id = "a";
  info.tokens = 5;
  info.saved = true;
  const Json body = Json::parse(session_json(info));
  EXPECT_EQ(body, (Json{{"id", "a"},
                        {"object", "session"},
                        {"parent", nullptr},
                        {"created", 0},
                        {"tokens", 5},
                        {"turns", 0},
                        {"bytes", 0},
                        {"saved", true},
                        {"busy", false},
                        {"problem", nullptr}}));
  info.parent = "b";
  const std::vector<SessionInfo> two = {info, info};
  EXPECT_EQ(Json::parse(session_list_json(two))["data"][1]["parent"], "b");
  EXPECT_EQ(Json::parse(session_deleted_json("a"))["deleted"], true);
}

TEST(States, AreNamedAfterTheirAnswers) {
  SequenceState known, unknown;
  known.ticket = 7;
  known.choice = 1;
  known.tokens = 64;
  known.layers = {{1.5f, 0.5f, 0.25f, 0, 0.125f},
                  {std::numeric_limits<float>::quiet_NaN(), 0, 0, 1, 0}};
  unknown.ticket = 8;
  unknown.session = "s";
  const std::vector<SequenceState> both = {known, unknown};
  const Json body = Json::parse(state_list_json(both, {{7, {"cmpl-1", 4}}}));
  const Json& first = body["data"][0];
  EXPECT_EQ(first["id"], "cmpl-1");
  EXPECT_EQ(first["choice"], 5);
  EXPECT_TRUE(first["session"].is_null());
  EXPECT_EQ(first["layers"][0], (Json{{"layer", 0},
                                      {"norm", 1.5},
                                      {"deviation", 0.5},
                                      {"conv_norm", 0.25},
                                      {"non_finite", 0.0},
                                      {"drift", 0.125}}));
  EXPECT_TRUE(first["layers"][1]["norm"].is_null());
  EXPECT_TRUE(body["data"][1]["id"].is_null());
  EXPECT_EQ(body["data"][1]["session"], "s");
}

}  // namespace
}  // namespace adder
