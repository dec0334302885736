// adder run: generate text.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/atomic_file.h"
#include "engine/model_source.h"
#include "engine/state_file.h"

namespace adder {
namespace {

// What the demo model continues when nobody gives it a prompt.
constexpr std::string_view kDemoPrompt = "It was a fine morning, and ";

struct RunOptions {
  cli::ModelOptions model;
  std::optional<std::string> first, second;  // [MODEL] [PROMPT]
  std::optional<std::string> tokens;
  int64_t max_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::optional<int> logprobs;
  std::string state_in, state_out;
  bool json = false, stats = false, ignore_eos = false;
};

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

// One argument alone is a model if it names one, else the prompt.
std::optional<std::string> split_arguments(RunOptions& o) {
  if (o.second) {
    o.model.model = *o.first;
    return o.second;
  }
  if (o.first && (o.tokens || names_a_model(*o.first))) {
    o.model.model = *o.first;
    return std::nullopt;
  }
  return o.first;
}

Prompt read_prompt(const RunOptions& o, const std::optional<std::string>& argument,
                   const Engine& engine) {
  Prompt prompt;
  if (o.tokens) {
    if (argument) bad_input("--tokens: expected ids or a PROMPT, got both");
    prompt.ids = cli::read_ids(*o.tokens);
    return prompt;
  }
  if (argument) {
    prompt.text = *argument;
  } else if (!cli::stdin_is_terminal()) {
    prompt.text = cli::read_stdin();
  }
  const bool fresh = o.state_in.empty();
  if (prompt.text.empty() && fresh) {
    if (!o.model.model.empty())
      bad_input("PROMPT: expected text, as an argument or on standard input, got none");
    prompt.text = kDemoPrompt;
  }
  if (!prompt.text.empty()) {
    EncodeOptions encode;
    encode.add_bos = fresh;
    prompt.ids = engine.tokenizer().encode(prompt.text, encode);
  }
  return prompt;
}

std::unique_ptr<Engine> load(const RunOptions& o) {
  try {
    return cli::load_engine(o.model);
  } catch (const Error& e) {
    // "and/or" is spelled like a repository. What this machine or build lacks is no matter of
    // spelling.
    if (o.second || !o.first || o.tokens || cli::is_path(*o.first) ||
        e.code() == ErrorCode::kUnsupported) {
      throw;
    }
    throw Error(e.code(), fmt::format("{} (if '{}' is a prompt, give it on standard input)",
                                      e.what(), *o.first));
  }
}

nlohmann::json logprobs_json(const Engine& engine, const std::vector<TokenLogprobs>& logprobs) {
  const auto entry = [&](const TokenLogprob& p) {
    nlohmann::json j = {{"token", p.token}, {"logprob", p.logprob}};
    if (engine.has_tokenizer()) j["text"] = engine.tokenizer().token_bytes(p.token);
    return j;
  };
  nlohmann::json list = nlohmann::json::array();
  for (const TokenLogprobs& p : logprobs) {
    nlohmann::json item = entry(p.chosen);
    item["top"] = nlohmann::json::array();
    for (const TokenLogprob& t : p.top) item["top"].push_back(entry(t));
    list.push_back(std::move(item));
  }
  return list;
}

double per_second(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

void print_json(const RunOptions& o, const Engine& engine, const GenerationResult& r,
                double load_s) {
  const auto decoded = static_cast<int64_t>(r.tokens.size());
  const int64_t fed = r.prompt_tokens - r.cached_tokens;
  nlohmann::ordered_json j;
  j["model"] = o.model.model.empty() ? "demo" : o.model.model;
  j["device"] = engine.backend().description();
  j["prompt_tokens"] = r.prompt_tokens;
  j["cached_tokens"] = r.cached_tokens;
  j["tokens"] = r.tokens;
  j["text"] = r.text;
  j["finish_reason"] = finish_reason_name(r.finish);
  if (o.logprobs) j["logprobs"] = logprobs_json(engine, r.logprobs);
  j["timings"] = {{"load_s", load_s},
                  {"prefill_s", r.prefill_s},
                  {"prefill_tok_s", per_second(fed, r.prefill_s)},
                  {"decode_s", r.decode_s},
                  {"decode_tok_s", per_second(decoded - 1, r.decode_s)}};
  j["peak_rss_bytes"] = cli::peak_rss_bytes();
  if (const auto memory = engine.device_memory()) j["device_memory_bytes"] = memory->used;
  // A token may be part of a character; such bytes are shown as U+FFFD.
  fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_stats(Engine& engine, const GenerationResult& r, double load_s) {
  const int64_t fed = r.prompt_tokens - r.cached_tokens;
  const auto decoded = static_cast<int64_t>(r.tokens.size());
  fmt::print(
      stderr,
      "{}: load {:.3f} s; prompt {} tokens{} in {:.3f} s ({:.1f}/s); answer {} tokens in {:.3f} s "
      "({:.1f}/s); peak memory {:.0f} MB{}\n",
      engine.backend().description(), load_s, fed,
      r.cached_tokens > 0 ? fmt::format(" after {} saved ones", r.cached_tokens) : "", r.prefill_s,
      per_second(fed, r.prefill_s), decoded, r.decode_s, per_second(decoded - 1, r.decode_s),
      static_cast<double>(cli::peak_rss_bytes()) / 1e6, cli::device_memory_text(engine));
}

void run(RunOptions& o) {
  const auto argument = split_arguments(o);
  if (!o.state_out.empty()) AtomicFile::check_target(o.state_out);  // before the work, not after
  const double started = cli::seconds();
  const auto engine = load(o);
  const double load_s = cli::seconds() - started;
  Prompt prompt = read_prompt(o, argument, *engine);

  Conversation conversation;
  if (!o.state_in.empty()) conversation = load_conversation(*engine, o.state_in);
  cli::Progress progress("prompt", static_cast<int64_t>(prompt.ids.size()));
  GenerationRequest request;
  request.prompt = std::move(prompt.ids);
  request.max_tokens = o.max_tokens;
  request.sampling = o.sampling;
  request.stop = o.stop;
  request.want_logprobs = o.logprobs.has_value();
  request.top_logprobs = o.logprobs.value_or(0);
  request.ignore_eos = o.ignore_eos;
  if (!o.state_in.empty() || !o.state_out.empty()) request.conversation = &conversation;
  request.cancel = &cli::watch_interrupt();
  request.on_prefill = [&](int64_t done) { progress.update(done); };
  if (!o.json) {
    if (cli::stdout_is_terminal() && !prompt.text.empty())
      fmt::print("\033[2m{}\033[0m", prompt.text);
    request.on_text = [&](std::string_view text) {
      progress.clear();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  }
  const GenerationResult result = generate(*engine, request);
  progress.clear();
  if (o.json) {
    print_json(o, *engine, result, load_s);
  } else if (o.max_tokens > 0) {
    if (!engine->has_tokenizer()) fmt::print("{}", fmt::join(result.tokens, ","));
    fmt::print("\n");
  }
  if (!o.state_out.empty()) save_conversation(*engine, conversation, o.state_out);
  if (o.stats) print_stats(*engine, result, load_s);
}

}  // namespace

void add_run(CLI::App& app) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* c = app.add_subcommand("run", "Generate text from a prompt");
  c->footer(
      "MODEL is a directory, a .safetensors, .bin or .pt file, or a repository that was fetched "
      "with\n"
      "`adder pull`; without it the demo model inside the program runs. PROMPT comes from "
      "standard\n"
      "input when it is not given. The answer goes to standard output; the same options give the "
      "same\n"
      "answer every time, whatever the number of threads.");
  c->add_option("MODEL", o->first, "Model; without it the demo model")->type_name("");
  c->add_option("PROMPT", o->second, "Text to continue; without it standard input")->type_name("");
  c->add_option("-n", o->max_tokens, "Tokens to generate at most; 0 only processes the prompt")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  cli::add_sampling_options(*c, o->sampling);
  c->add_option("--stop", o->stop, "End before this text; may be given several times")
      ->allow_extra_args(false);
  c->add_flag("--ignore-eos", o->ignore_eos, "Go on after the end-of-text token");
  c->add_option("--logprobs", o->logprobs,
                "With --json: list each token's K most probable alternatives");
  c->add_option(
      "--tokens", o->tokens,
      "Ids separated by commas instead of a text; @FILE or - (standard input) for long lists");
  cli::add_engine_options(*c, o->model);
  c->add_option("--state-in", o->state_in, "Continue from a saved state; PROMPT is what follows");
  c->add_option("--state-out", o->state_out, "Save the state after the answer");
  c->add_flag("--json", o->json, "Print one JSON object");
  c->add_flag("--stats", o->stats, "Print timings and memory to standard error");
  c->callback([o] { run(*o); });
}

}  // namespace adder
