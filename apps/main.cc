// The command line: one binary, one subcommand per file of this folder.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "commands.h"
#include "core/error.h"

int main(int argc, char** argv) {
  CLI::App app{
      "Adder runs Mamba state space models: from a raw checkpoint to text.\n"
      "Exit status: 0 done; 1 bad input or a failed load, with one line that says why; 2 wrong "
      "usage."};
  app.name("adder");
  app.set_version_flag("--version", "adder 0.1.0");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all commands");
  adder::add_run(app);
  adder::add_chat(app);
  adder::add_score(app);
  adder::add_logits(app);
  adder::add_tokenize(app);
  adder::add_inspect(app);
  adder::add_pull(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fflush(stdout);
    fmt::print(stderr, "adder: {}\n", e.what());
    return 1;
  }
  return 0;
}
