#include "server/service.h"

#include <ctime>
#include <utility>

#include "engine/chat.h"
#include "server/replies.h"

namespace adder {
namespace {

// Whether reading a body, tokenizing it, and compiling its grammar may take long enough to be felt
// in the streams of others.
bool takes_long(const std::string& body) {
  constexpr size_t kLarge = 16 << 10;
  return body.size() > kLarge || body.find("\"grammar\"") != std::string::npos ||
         body.find("\"response_format\"") != std::string::npos;
}

// Whether `text` goes on after its first '/'-separated part, which is returned.
std::string_view next_part(std::string_view& text) {
  text.remove_prefix(text.starts_with('/') ? 1 : 0);
  const std::string_view part = text.substr(0, text.find('/'));
  text.remove_prefix(part.size());
  return part;
}

}  // namespace

// {id} is one segment, {id...} is all that are left: ids of models have slashes.
const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> table = {
      {"GET", "/", &Service::page},
      {"GET", "/health", &Service::health},
      {"GET", "/ready", &Service::ready},
      {"GET", "/metrics", &Service::metrics},
      {"GET", "/v1/models", &Service::models},
      {"GET", "/v1/models/{id...}", &Service::model},
      {"POST", "/tokenize", &Service::tokenize},
      {"POST", "/detokenize", &Service::detokenize},
      {"POST", "/v1/completions", &Service::completions},
      {"POST", "/v1/chat/completions", &Service::chat_completions},
      {"POST", "/v1/embeddings", &Service::embeddings},
      {"GET", "/v1/state", &Service::state},
      {"GET", "/v1/sessions", &Service::list_sessions},
      {"POST", "/v1/sessions", &Service::create_session},
      {"GET", "/v1/sessions/{id}", &Service::get_session},
      {"DELETE", "/v1/sessions/{id}", &Service::delete_session},
      {"POST", "/v1/sessions/{id}/fork", &Service::fork_session},
      {"POST", "/v1/sessions/{id}/rollback", &Service::roll_session_back},
      {"POST", "/v1/sessions/{id}/save", &Service::save_session},
      {"POST", "/v1/sessions/{id}/restore", &Service::restore_session},
  };
  return table;
}

Service::Service(Engine& engine, Scheduler& scheduler, ServiceOptions options)
    : engine_(engine),
      tokenizer_(engine.tokenizer()),
      scheduler_(scheduler),
      limits_(std::move(options.limits)),
      template_(choose_chat_template(engine, options.chat_template)),
      started_(static_cast<int64_t>(std::time(nullptr))),
      grammars_(engine),
      context_{scheduler, tokenizer_, metrics_, running_, draining_} {
  limits_.vocab_rows = engine.config().vocab_rows;
  limits_.vocab_limit = engine.vocab_limit();
}

Service::~Service() = default;

bool Service::matches(std::string_view pattern, const std::vector<std::string>& segments,
                      std::vector<std::string>* arguments) {
  size_t i = 0;
  while (pattern.size() > 1) {
    if (i == segments.size()) return false;
    const std::string_view part = next_part(pattern);
    if (part.ends_with("...}")) {
      std::string rest = segments[i];
      while (++i < segments.size()) rest += "/" + segments[i];
      if (arguments != nullptr) arguments->push_back(std::move(rest));
    } else if (part.starts_with('{')) {
      if (arguments != nullptr) arguments->push_back(segments[i++]);
    } else if (part != segments[i++]) {
      return false;
    }
  }
  return i == segments.size();
}

void Service::handle(HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
  const auto call = std::make_shared<Call>(
      Call{std::move(request), std::move(reply), {}, std::chrono::steady_clock::now()});
  const auto work = [this, call] { answer_errors(*call->reply, [&] { dispatch(*call); }); };
  if (takes_long(call->request.body)) {
    background_.post(work);
  } else {
    work();
  }
}

void Service::dispatch(Call& call) {
  std::string allowed;
  for (const Route& route : routes()) {
    call.arguments.clear();
    if (!matches(route.path, call.request.segments, &call.arguments)) continue;
    if (route.method == call.request.method) return (this->*route.handler)(call);
    allowed += allowed.empty() ? "" : ", ";
    allowed += route.method;
  }
  if (allowed.empty()) {
    throw ApiError(404, fmt::format("{}: no such endpoint", call.request.path), "",
                   "unknown_endpoint");
  }
  const ApiError error(
      405, fmt::format("{}: expected {}, got {}", call.request.path, allowed, call.request.method));
  call.reply->send(405, "application/json", error_body(error), {{"Allow", allowed}});
}

void Service::drain(std::chrono::steady_clock::time_point deadline) {
  draining_ = true;
  drain_by_ = deadline;
}

bool Service::is_public(const HttpRequest& request) {
  return request.path == "/" || request.path == "/health" || request.path == "/ready";
}

void Service::count(const HttpRecord& record) {
  // Paths come from outside; a table's worth of names is what a metrics system can keep.
  std::string_view name = "other";
  HttpRequest request;
  try {
    parse_target(record.path, request);
    for (const Route& route : routes()) {
      if (!matches(route.path, request.segments, nullptr)) continue;
      name = route.path;
      break;
    }
  } catch (const HttpRefusal&) {
    // Not a path at all: counted as another.
  }
  metrics_.count_request(name, record.status, record.seconds);
}

void Service::in_engine(std::shared_ptr<HttpReply> reply,
                        std::function<void(const Scheduler::Inside&)> job) {
  scheduler_.post([reply = std::move(reply), job = std::move(job)](const Scheduler::Inside& in) {
    answer_errors(*reply, [&] { job(in); });
  });
}

}  // namespace adder
