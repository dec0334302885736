#include "cli_common.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/error.h"
#include "core/thread_pool.h"

namespace adder::cli {

void add_engine_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--device", options.device,
                  "Where to compute: cpu, cuda or cuda:1 (a GPU), xla or xla:PLUGIN (PJRT), "
                  "ref (slow, the definition)")
      ->check([](const std::string& name) -> std::string {
        try {
          check_device_name(name);
        } catch (const Error& e) {
          return e.what();
        }
        return {};
      })
      ->capture_default_str();
  command
      .add_option("--jit-cache", options.jit_cache_mb,
                  "Megabytes of compiled programs that xla keeps on the disk; 0: none. Without it "
                  "$ADDER_JIT_CACHE_MB, else 1024")
      ->type_name("MB")
      ->check(CLI::Range(0, 1 << 30));
  add_thread_options(command, options);
}

void add_thread_options(CLI::App& command, ModelOptions& options) {
  command.add_option("--threads", options.threads, "Compute threads; 0: one per CPU available")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_flag("--no-pin", options.no_pin,
                   "Let the system move threads; else, with one per CPU, each keeps its own");
  command
      .add_option("--block", options.block,
                  "Tokens of the prompt processed at once; bounds memory. 0: what `adder tune` "
                  "chose, else " +
                      std::to_string(kDefaultBlock))
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
}

void add_sampling_options(CLI::App& command, SamplingOptions& s) {
  command
      .add_option("--temp", s.temperature, "Temperature; 0 always takes the most probable token")
      ->capture_default_str();
  command.add_option("--top-k", s.top_k, "Keep the K most probable tokens; 0: all")
      ->capture_default_str();
  command.add_option("--top-p", s.top_p, "Keep the most probable tokens that sum to P")
      ->capture_default_str();
  command.add_option("--min-p", s.min_p, "Drop tokens less than P times as probable as the first")
      ->capture_default_str();
  command.add_option("--repeat-penalty", s.repeat_penalty, "Penalty on recent tokens; 1: none")
      ->capture_default_str();
  command.add_option("--repeat-last-n", s.repeat_last_n, "How many tokens count as recent")
      ->capture_default_str();
  command.add_option("--seed", s.seed, "Same seed, same text")->capture_default_str();
}

void warn_of_tuning(const Engine& engine) {
  if (engine.tuning_problem().empty()) return;
  fmt::print(stderr, "adder: note: the stored tuning is not used: {}\n",
             escape_unprintable(engine.tuning_problem()));
}

EngineOptions engine_options(const ModelOptions& options) {
  EngineOptions engine;
  engine.device = options.device;
  engine.threads = options.threads;
  engine.pin = !options.no_pin;
  engine.jit_cache_mb = options.jit_cache_mb;
  engine.block = options.block;
  return engine;
}

void pin_main_thread(const ModelOptions& options) {
  if (!options.no_pin && options.device == "cpu") pin_calling_thread(options.threads);
}

std::unique_ptr<Engine> load_engine(const ModelOptions& options, int64_t logit_rows) {
  EngineOptions engine = engine_options(options);
  engine.logit_rows = logit_rows;
  auto loaded = Engine::load(options.model, engine);
  warn_of_tuning(*loaded);
  pin_main_thread(options);
  return loaded;
}

CLI::Validator number_from(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        double value = 0;
        const bool inside = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
        return inside ? std::string()
                      : fmt::format("Value {} not in range [{} - {}]", text, low, high);
      },
      fmt::format("FLOAT in [{} - {}]", low, high));
}

std::vector<int32_t> parse_ids(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<int32_t> ids;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view entry = text.substr(begin, end - begin);
    entry.remove_prefix(std::min(entry.find_first_not_of(kBlanks), entry.size()));
    entry = entry.substr(0, entry.find_last_not_of(kBlanks) + 1);
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), id);
    if (error != std::errc() || stop != entry.data() + entry.size()) {
      bad_input("ids: expected numbers separated by commas, got '{}' as number {}",
                entry.substr(0, 40), ids.size() + 1);
    }
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

namespace {

// Length of the well-formed UTF-8 character at the start of `text`, 0 if there is none.
size_t utf8_length(std::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t n = byte(0) < 0x80   ? 1
                   : byte(0) < 0xc2 ? 0
                   : byte(0) < 0xe0 ? 2
                   : byte(0) < 0xf0 ? 3
                   : byte(0) < 0xf5 ? 4
                                    : 0;
  if (n == 0 || n > text.size()) return 0;
  code = n == 1 ? byte(0) : byte(0) & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  return overlong || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff ? 0 : n;
}

bool is_unprintable(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string escape_unprintable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t n = utf8_length(text, code);
    if (n != 0 && !is_unprintable(code)) {
      out += text.substr(0, n);
    } else {
      for (const char c : text.substr(0, std::max<size_t>(1, n))) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(std::max<size_t>(1, n));
  }
  return out;
}

bool is_path(const std::string& argument) {
  return ::access(argument.c_str(), F_OK) == 0;
}

bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}
bool stdout_is_terminal() {
  return ::isatty(STDOUT_FILENO) == 1;
}

namespace {

std::string read_all(int fd, std::string_view name) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::kIo, "{}: cannot read: {}", name, std::strerror(errno));
    text.append(buffer, static_cast<size_t>(n));
  }
}

std::atomic<bool> interrupted{false};

}  // namespace

std::vector<int32_t> read_ids(const std::string& value) {
  if (value == "-") return parse_ids(read_stdin());
  if (value.starts_with('@')) return parse_ids(read_file(value.substr(1)));
  return parse_ids(value);
}

std::string read_stdin() {
  return read_all(STDIN_FILENO, "standard input");
}

std::string read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorCode::kIo, "'{}': cannot open: {}", path, std::strerror(errno));
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !(S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode))) {
    ::close(fd);  // a device may never end
    bad_input("{}: expected a file or a pipe, got a directory or a device", path);
  }
  try {
    std::string text = read_all(fd, path);
    ::close(fd);
    return text;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

const std::atomic<bool>& watch_interrupt() {
  interrupted.store(false);
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one takes the default action
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return interrupted;
}

void forget_interrupt() {
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
}

std::string device_memory_text(const Engine& engine) {
  const auto memory = engine.device_memory();
  if (!memory) return "";
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  std::string text = fmt::format(
      ", {} {:.0f} MB", memory->whole_device ? "device memory" : "arrays", megabytes(memory->used));
  if (memory->limit > 0) text += fmt::format(" of {:.0f}", megabytes(memory->limit));
  return text;
}

uint64_t peak_rss_bytes() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

double seconds() {
  using clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

Progress::Progress(std::string label, int64_t total, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), started_(seconds()) {}

Progress::~Progress() {
  clear();
}

void Progress::update(int64_t done) {
  const double now = seconds();
  if (now - started_ < 1.0 || now - drawn_ < 0.1 || ::isatty(STDERR_FILENO) != 1) return;
  drawn_ = now;
  visible_ = true;
  const double rate = static_cast<double>(done) / (now - started_);
  fmt::print(
      stderr, "\r\033[K{}: {} of {} {}, {:.0f} %, {:.0f} per second", label_, done, total_, unit_,
      total_ > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total_) : 100.0, rate);
  std::fflush(stderr);
}

void Progress::clear() {
  if (visible_) fmt::print(stderr, "\r\033[K");
  visible_ = false;
}

}  // namespace adder::cli
