// The server's endpoints: from an HTTP request to the scheduler and back.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/embedding.h"
#include "engine/engine.h"
#include "engine/grammar_editor.h"
#include "engine/scheduler.h"
#include "server/answer.h"
#include "server/background.h"
#include "server/http_options.h"
#include "server/http_reply.h"
#include "server/http_request.h"
#include "server/metrics.h"
#include "server/openai_request.h"

namespace adder {

struct ServiceOptions {
  ApiLimits limits;           // its sizes of the vocabulary are set by the service
  std::string chat_template;  // as for choose_chat_template()
};

// Of the engine only what is constant is used here; everything else happens in jobs of the
// scheduler. Must outlive the scheduler's run() and the HTTP server.
class Service {
 public:
  // Throws Error(kBadInput) for a model without a tokenizer or an unknown template.
  Service(Engine& engine, Scheduler& scheduler, ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Does not block: for the HTTP server's thread.
  void handle(HttpRequest&& request, std::shared_ptr<HttpReply> reply);
  // From here on /ready says no, and refusals say that the server is shutting down. Embeddings that
  // are not done by `deadline` fail; the rest is the scheduler's.
  void drain(std::chrono::steady_clock::time_point deadline);
  // For HttpServerOptions: what needs no key (the page and the two signs of life), and counting.
  static bool is_public(const HttpRequest& request);
  void count(const HttpRecord& record);
  // Where /metrics gets the connections from. Before the first request.
  void set_http_stats(std::function<HttpStats()> stats) { http_stats_ = std::move(stats); }

 private:
  // A request on its way, with what the path's {placeholders} stand for.
  struct Call {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
    std::vector<std::string> arguments;
    std::chrono::steady_clock::time_point arrived;
  };
  using Handler = void (Service::*)(Call& call);
  struct Route {
    std::string_view method, path;
    Handler handler;
  };
  static const std::vector<Route>& routes();
  static bool matches(std::string_view pattern, const std::vector<std::string>& segments,
                      std::vector<std::string>* arguments);
  void dispatch(Call& call);

  void page(Call& call);
  void health(Call& call);
  void ready(Call& call);
  void metrics(Call& call);
  void models(Call& call);
  void model(Call& call);
  void tokenize(Call& call);
  void detokenize(Call& call);
  void completions(Call& call);
  void chat_completions(Call& call);
  void embeddings(Call& call);
  void state(Call& call);
  void list_sessions(Call& call);
  void create_session(Call& call);
  void get_session(Call& call);
  void delete_session(Call& call);
  void fork_session(Call& call);
  void roll_session_back(Call& call);
  void save_session(Call& call);
  void restore_session(Call& call);

  // Runs `job` on the scheduler's thread; what it throws goes to the client.
  void in_engine(std::shared_ptr<HttpReply> reply,
                 std::function<void(const Scheduler::Inside&)> job);
  void answer_with_session(const Call& call, std::function<SessionInfo(SessionStore&)> work);

  // What the endpoints that generate share. `encode` gives a prompt's ids, for a state that has
  // seen nothing (true) or something.
  using Encode = std::function<std::vector<int32_t>(bool fresh)>;
  AnswerOptions answer_options(const Call& call, const GenerationOptions& options, bool chat) const;
  ServeRequest serve_request(const GenerationOptions& options, const Call& call) const;
  GrammarMatcher find_grammar(const GenerationOptions& options);
  std::unique_ptr<LogitEditor> make_editor(const GenerationOptions& options,
                                           const std::vector<int32_t>& stop_tokens);
  void start(const Call& call, const GenerationOptions& options, AnswerOptions answer,
             const ServeRequest& request, const std::vector<Encode>& prompts);
  std::vector<int32_t> encode_prompt(const PromptInput& prompt, bool fresh) const;

  struct EmbeddingJob;
  void step_embedding(const std::shared_ptr<EmbeddingJob>& job, const Scheduler::Inside& inside);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  Scheduler& scheduler_;
  ApiLimits limits_;
  ChatTemplate template_;
  int64_t started_;  // Unix time, seconds
  ServerMetrics metrics_;
  RunningAnswers running_;
  std::atomic<bool> draining_{false};
  std::atomic<std::chrono::steady_clock::time_point> drain_by_{
      std::chrono::steady_clock::time_point::max()};
  std::function<HttpStats()> http_stats_;
  GrammarCache grammars_;
  AnswerContext context_;
  BackgroundThread background_;  // last: its jobs use the rest
};

}  // namespace adder
