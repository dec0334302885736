// The command line: one binary, one subcommand per file of this folder.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"

namespace {

// One line, whatever was in the file or argument that the message quotes.
int report(std::string_view message) {
  std::fflush(stdout);
  constexpr size_t kLongest = 2000;
  fmt::print(stderr, "adder: {}\n", adder::cli::escape_unprintable(message.substr(0, kLongest)));
  return 1;
}

}  // namespace

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
  adder::add_serve(app);
  adder::add_score(app);
  adder::add_logits(app);
  adder::add_tokenize(app);
  adder::add_inspect(app);
  adder::add_pull(app);
  adder::add_convert(app);
  adder::add_quantize(app);
  adder::add_bench(app);
  adder::add_roofline(app);
  adder::add_tune(app);
  adder::add_validate(app);
  adder::add_compile(app);
  adder::add_export(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::bad_alloc&) {
    return report("out of memory");
  } catch (const std::exception& e) {
    return report(e.what());
  }
  // A full disk shows when the last bytes are written.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report(fmt::format("standard output: cannot write: {}", std::strerror(errno)));
  }
  return 0;
}
