// adder serve: an OpenAI-compatible server.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/model_source.h"
#include "engine/scheduler.h"
#include "engine/state_budget.h"
#include "server/http_server.h"
#include "server/service.h"
#include "shutdown_signals.h"

namespace adder {
namespace {

struct ServeOptions {
  cli::ModelOptions model;
  HttpServerOptions http;
  SchedulerOptions scheduler;
  ServiceOptions service;
  int slots = 0;
  int64_t cache_mb = 1024, session_mb = 2048;
  std::string key_file, log = "text";
  bool insecure = false;
  double drain_s = 30;
};

// "state-spaces/mamba-130m" as it is; of a path its last part; "demo".
std::string model_id(const std::string& model) {
  if (model.empty()) return "demo";
  if (!cli::is_path(model)) return model;
  std::filesystem::path path = std::filesystem::absolute(model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return std::filesystem::is_directory(path) ? path.filename() : path.stem();
}

// One key a line; blank lines and those that begin with # do not count.
std::vector<std::string> read_keys(const std::string& file) {
  std::vector<std::string> keys;
  const std::string text = cli::read_file(file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty() && line[0] != '#') keys.push_back(std::move(line));
    begin = end + 1;
  }
  ADDER_CHECK(!keys.empty(), "{}: expected a key on a line of its own, got none", file);
  return keys;
}

void collect_keys(ServeOptions& o) {
  if (!o.key_file.empty()) {
    for (std::string& key : read_keys(o.key_file)) o.http.api_keys.push_back(std::move(key));
  }
  const char* from_environment = std::getenv("ADDER_API_KEY");
  if (from_environment != nullptr && *from_environment != '\0') {
    o.http.api_keys.emplace_back(from_environment);
  }
  if (o.http.api_keys.empty() && !o.insecure && !is_loopback(o.http.host)) {
    bad_input(
        "--host {}: expected an --api-key beside an address that others can reach, got none "
        "(--insecure serves everybody)",
        o.http.host);
  }
}

std::unique_ptr<Engine> load(const ServeOptions& o) {
  auto checkpoint = std::make_shared<Checkpoint>(open_model(o.model.model));
  auto tokenizer = find_tokenizer(*checkpoint);
  EngineOptions options = cli::engine_options(o.model);
  constexpr int32_t kUsualSlots = 16;
  options.slots = o.slots > 0 ? o.slots : slots_that_fit(*checkpoint, kUsualSlots);
  auto engine = std::make_unique<Engine>(std::move(checkpoint), std::move(tokenizer), options);
  cli::warn_of_tuning(*engine);
  return engine;
}

// One line per request; whole lines, whichever thread writes them.
void log_request(const std::string& form, const HttpRecord& r) {
  const auto now = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  std::string line;
  if (form == "json") {
    nlohmann::ordered_json j;
    j["time"] = now;
    j["client"] = r.client;
    j["method"] = r.method;
    j["path"] = r.path;
    j["status"] = r.status;
    j["bytes"] = r.bytes;
    j["seconds"] = r.seconds;
    j["complete"] = r.complete;
    if (!r.error.empty()) j["error"] = r.error;
    line = j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } else {
    line = fmt::format("{} {} {} {} {} {} bytes {:.1f} ms{}{}", now, r.client,
                       cli::escape_unprintable(r.method), cli::escape_unprintable(r.path), r.status,
                       r.bytes, 1e3 * r.seconds, r.complete ? "" : " cut",
                       r.error.empty() ? "" : ": " + cli::escape_unprintable(r.error));
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string url(const ServeOptions& o, int port) {
  const bool ipv6 = o.http.host.find(':') != std::string::npos && o.http.host[0] != '[';
  return fmt::format("{}://{}:{}", o.http.tls_key.empty() ? "http" : "https",
                     ipv6 ? "[" + o.http.host + "]" : o.http.host, port);
}

void serve(ServeOptions& o) {
  collect_keys(o);
  o.http.validate();
  // Before any thread, which would inherit the signals' default action.
  cli::ShutdownSignals signals;

  const auto engine = load(o);
  o.scheduler.cache_bytes = static_cast<uint64_t>(o.cache_mb) << 20;
  o.scheduler.session_bytes = static_cast<uint64_t>(o.session_mb) << 20;
  Scheduler scheduler(*engine, o.scheduler);
  o.service.limits.model = model_id(o.model.model);
  o.service.limits.max_choices = engine->states().slots();
  o.service.limits.max_prompts = engine->states().slots() + o.scheduler.max_queue;
  Service service(*engine, scheduler, o.service);

  o.http.only_this_machine = is_loopback(o.http.host) && o.http.api_keys.empty() && !o.insecure;
  o.http.is_public = &Service::is_public;
  o.http.on_request_done = [&](const HttpRecord& record) {
    service.count(record);
    if (o.log != "off") log_request(o.log, record);
  };
  HttpServer server(o.http, [&](HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
    service.handle(std::move(request), std::move(reply));
  });
  service.set_http_stats([&server] { return server.stats(); });

  const auto drain = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(o.drain_s));
  signals.on_first([&] {
    const auto deadline = std::chrono::steady_clock::now() + drain;
    service.drain(deadline);
    scheduler.stop(deadline);
  });
  fmt::print(stderr, "adder: serving {} on {}\n", o.service.limits.model, url(o, server.port()));
  // Only now: the server's threads would inherit the CPU.
  cli::pin_main_thread(o.model);
  scheduler.run();
  signals.on_first(nullptr);
  // The last answers are on their way; nothing new begins.
  server.drain(std::chrono::seconds(2));
}

void add_network_options(CLI::App& c, ServeOptions& o) {
  c.add_option("--host", o.http.host, "Address to listen on; others than this machine's need a key")
      ->capture_default_str();
  c.add_option("--port", o.http.port, "0: any free one")
      ->check(CLI::Range(0, 65535))
      ->default_val(8080);
  c.add_option(
       "--api-key", o.http.api_keys,
       "Clients must send \"Authorization: Bearer KEY\"; may be given several times. Others "
       "can read it\nin the list of processes: rather use a file or ADDER_API_KEY")
      ->allow_extra_args(false);
  c.add_option("--api-key-file", o.key_file, "Keys, one a line");
  c.add_flag("--insecure", o.insecure,
             "Without a key, also listen on a public address, and answer requests that pages of "
             "other sites "
             "send or that come by another name");
  c.add_option("--cors", o.http.cors_origins,
               "Origin whose pages may use the server, or *; may be given several times")
      ->allow_extra_args(false);
  c.add_option("--tls-cert", o.http.tls_certificate, "Certificate chain (PEM): serve HTTPS");
  c.add_option("--tls-key", o.http.tls_key, "Its key (PEM)");
  c.add_option("--max-connections", o.http.max_connections, "Connections at a time")
      ->check(CLI::Range(size_t{1}, size_t{1} << 20))
      ->capture_default_str();
}

void add_engine_side_options(CLI::App& c, ServeOptions& o) {
  c.add_option("--alias", o.service.limits.aliases,
               "Another name that requests may call the model by; may be given several times")
      ->allow_extra_args(false);
  c.add_option("--template", o.service.chat_template,
               "plain, chatml, mistral or falcon; default: the model's own");
  c.add_option("--slots", o.slots,
               "Sequences in flight together; 0: 16, fewer where states are large")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  c.add_option("--queue", o.scheduler.max_queue,
               "Requests that may wait for a slot; more are refused with 429")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  c.add_option("--max-tokens", o.service.limits.max_tokens,
               "The most tokens that a request may ask for")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  c.add_option("--timeout", o.service.limits.timeout_s, "Seconds that a request may take")
      ->check(cli::number_from(0.001, 1e7))
      ->capture_default_str();
  c.add_option("--cache-mb", o.cache_mb, "Memory for states of prompts; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  c.add_option("--snapshot-every", o.scheduler.snapshot_every,
               "Keep a state every N tokens of a prompt, beside the one at its end; 0: only that")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  c.add_option("--session-mb", o.session_mb, "Memory for states of sessions")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  c.add_option("--session-dir", o.scheduler.session_dir,
               "Folder for saved sessions; without it they end with the server");
  c.add_option("--monitor-every", o.scheduler.monitor_every,
               "Measure a sequence's state every N tokens; 0: never")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  c.add_option(
       "--max-state-norm", o.scheduler.max_state_norm,
       "End a sequence when a layer's root mean square exceeds this; 0: only when it is not "
       "finite")
      ->check(cli::number_from(0.0, 1e30))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* c = app.add_subcommand("serve", "Serve a model to OpenAI's clients and to browsers");
  c->footer(
      "Completions, chat, embeddings, sessions and metrics over HTTP, and a page at /; see\n"
      "docs/server.md. SIGTERM or Ctrl-C lets running answers end, a second one does not.");
  c->add_option("model", o->model.model, "Model; without it the demo model")->type_name("MODEL");
  add_network_options(*c, *o);
  add_engine_side_options(*c, *o);
  c->add_option("--drain-seconds", o->drain_s, "How long running answers may take at the end")
      ->check(cli::number_from(0.0, 1e6))
      ->capture_default_str();
  c->add_option("--log", o->log, "One line per request on standard error: text, json or off")
      ->check(CLI::IsMember({"text", "json", "off"}))
      ->capture_default_str();
  cli::add_engine_options(*c, o->model);
  c->callback([o] { serve(*o); });
}

}  // namespace adder
