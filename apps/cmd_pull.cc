// adder pull: a repository into the cache or a directory.
#include <memory>
#include <string>

#include "cli_common.h"
#include "commands.h"
#include "io/hub.h"
#include "pull_display.h"

namespace adder {
namespace {

struct PullArguments {
  std::string repo, directory, revision = "main", endpoint;
  std::vector<std::string> include;
};

void run_pull(const PullArguments& arguments) {
  PullOptions options = pull_options_from_environment();
  if (!arguments.endpoint.empty()) options.endpoint = arguments.endpoint;
  options.revision = arguments.revision;
  options.directory = arguments.directory;
  options.include = arguments.include;
  options.cancel = &cli::watch_interrupt();

  PullResult result;
  {
    PullDisplay display;
    options.on_progress = [&](const PullProgress& progress) { display.update(progress); };
    result = pull(arguments.repo, options);
  }
  const std::string what = fmt::format("{}: {} files, {}", arguments.repo, result.files,
                                       format_bytes(static_cast<double>(result.bytes)));
  if (!result.offline.empty()) {
    fmt::print(stderr, "{}: complete, not compared with {}: {}\n", what, options.endpoint,
               result.offline);
  } else if (result.downloaded == 0) {
    fmt::print(stderr, "{}: up to date\n", what);
  } else {
    fmt::print(stderr, "{}: downloaded {} and verified\n", what, result.downloaded);
  }
  fmt::print("{}\n", result.directory);
}

}  // namespace

void add_pull(CLI::App& app) {
  CLI::App* command = app.add_subcommand("pull", "Download a model from a Hugging Face endpoint");
  command->footer(
      "Fetches the configuration, the tokenizer and one form of the weights, checks sizes and\n"
      "SHA-256, and prints the directory. An interrupted download is continued by the same\n"
      "command. Without DIR the model goes to $ADDER_CACHE/models/REPO (ADDER_CACHE defaults to\n"
      "~/.cache/adder), where `adder run REPO` finds it. HF_TOKEN is sent to the endpoint alone.");
  const auto arguments = std::make_shared<PullArguments>();
  command->add_option("REPO", arguments->repo, "owner/name, e.g. state-spaces/mamba-130m")
      ->required();
  command->add_option("DIR", arguments->directory, "Target directory");
  command->add_option("--revision", arguments->revision, "Branch, tag or commit")
      ->capture_default_str();
  command->add_option("--endpoint", arguments->endpoint,
                      "Base address; default $HF_ENDPOINT or https://huggingface.co");
  command
      ->add_option("--include", arguments->include,
                   "Also fetch files of this name or shell pattern (repeatable)")
      ->allow_extra_args(false);
  command->callback([arguments] { run_pull(*arguments); });
}

}  // namespace adder
