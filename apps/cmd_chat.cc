// adder chat: a conversation on the terminal.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <optional>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/chat.h"

namespace adder {
namespace {

struct ChatOptions {
  cli::ModelOptions model;
  std::string chat_template, system;
  int64_t max_tokens = 512;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  bool stats = false;
};

void print_help() {
  fmt::print(stderr,
             "/reset forgets the conversation, /quit or Ctrl-D ends, Ctrl-C stops an answer\n");
}

void chat(const ChatOptions& o) {
  const auto engine = cli::load_engine(o.model);
  ChatSession session(*engine, o.chat_template, o.system);
  const bool terminal = cli::stdin_is_terminal();
  if (terminal) {
    fmt::print(stderr, "{}, template {}. ", o.model.model.empty() ? "demo model" : o.model.model,
               session.template_name());
    print_help();
  }
  std::string line;
  for (;;) {
    if (terminal) fmt::print(stderr, "> ");
    // Between answers Ctrl-C ends the program, as everywhere.
    if (!std::getline(std::cin, line)) break;
    if (line == "/quit") break;
    if (line == "/help") {
      print_help();
      continue;
    }
    if (line == "/reset") {
      session.reset();
      continue;
    }
    if (line.empty()) continue;

    const std::atomic<bool>& interrupted = cli::watch_interrupt();
    GenerationRequest request;
    request.max_tokens = o.max_tokens;
    request.sampling = o.sampling;
    request.stop = o.stop;
    request.cancel = &interrupted;
    request.on_text = [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    const GenerationResult answer = session.ask(line, request);
    fmt::print("\n");
    std::fflush(stdout);
    if (o.stats) {
      fmt::print(stderr, "{} new prompt tokens, {} from the state, {} answered\n",
                 answer.prompt_tokens - answer.cached_tokens, answer.cached_tokens,
                 answer.tokens.size());
    }
    cli::forget_interrupt();
  }
  if (terminal) fmt::print(stderr, "\n");
}

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* c = app.add_subcommand("chat", "Talk with a model");
  c->footer(
      "One line is one message. The template is the model's own when it is a known one (plain, "
      "chatml,\n"
      "mistral, falcon); base models have none and just continue the text. Earlier messages stay "
      "in\n"
      "the model's state and are not processed again.");
  c->add_option("model", o->model.model, "Model; without it the demo model")->type_name("MODEL");
  c->add_option("--template", o->chat_template,
                "plain, chatml, mistral or falcon; default: the model's own");
  c->add_option("--system", o->system, "System message");
  c->add_option("-n", o->max_tokens, "Tokens of an answer at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  cli::add_sampling_options(*c, o->sampling);
  c->add_option("--stop", o->stop, "End an answer before this text; may be given several times")
      ->allow_extra_args(false);
  cli::add_engine_options(*c, o->model);
  c->add_flag("--stats", o->stats, "Print token counts to standard error");
  c->callback([o] { chat(*o); });
}

}  // namespace adder
