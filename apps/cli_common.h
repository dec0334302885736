// What the subcommands share: model options, reading prompts and ids, Ctrl-C, progress.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/generator.h"

namespace adder::cli {

struct ModelOptions {
  std::string model;  // path or pulled repository; empty: the demo model
  std::string device = "cpu";
  int threads = 0;
  bool no_pin = false;
  int64_t block = 0;  // 0: the tuned one, else the default
  std::optional<uint64_t> jit_cache_mb = {};
};

// --device, --jit-cache, --threads, --no-pin, --block; the MODEL argument is the command's own.
void add_engine_options(CLI::App& command, ModelOptions& options);
void add_thread_options(CLI::App& command,
                        ModelOptions& options);  // the same without the first two
void add_sampling_options(CLI::App& command, SamplingOptions& options);

// Tells on stderr when the stored tuning could not be used.
void warn_of_tuning(const Engine& engine);
// Of these.
EngineOptions engine_options(const ModelOptions& options);
// Once the engine is there: gives the main thread the CPU that the workers leave, unless --no-pin.
void pin_main_thread(const ModelOptions& options);
std::unique_ptr<Engine> load_engine(const ModelOptions& options, int64_t logit_rows = 1);

// As CLI::Range, which lets "nan" pass.
CLI::Validator number_from(double low, double high);

// "1,2,3". Throws Error(kBadInput) naming the entry that is not an id.
std::vector<int32_t> parse_ids(std::string_view text);
// The value of --tokens: ids, "-" for standard input, or "@FILE".
std::vector<int32_t> read_ids(const std::string& value);

// Text that a terminal shows as it is: control characters, bidirectional overrides and bytes that
// are not UTF-8 come out as \xNN.
std::string escape_unprintable(std::string_view text);

bool is_path(const std::string& argument);  // something of this name exists
bool stdin_is_terminal();
bool stdout_is_terminal();
std::string read_stdin();
std::string read_file(const std::string& path);

// Set by Ctrl-C from here on; a second Ctrl-C ends the program. forget_interrupt() goes back to the
// default action.
const std::atomic<bool>& watch_interrupt();
void forget_interrupt();

uint64_t peak_rss_bytes();
// ", device memory 640 MB of 16000" or nothing, behind the memory of the process.
std::string device_memory_text(const Engine& engine);
double seconds();

// One line on stderr that is redrawn at most ten times a second and only appears after a second,
// and only on a terminal. Cleared when it goes away.
class Progress {
 public:
  Progress(std::string label, int64_t total, std::string unit = "tokens");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(int64_t done);
  void clear();

 private:
  std::string label_, unit_;
  int64_t total_;
  double started_, drawn_ = 0;
  bool visible_ = false;
};

}  // namespace adder::cli
