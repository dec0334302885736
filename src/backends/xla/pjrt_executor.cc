#include "backends/xla/pjrt_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "core/machine.h"

namespace adder::xla {
namespace {

// A CompileOptionsProto.
std::string compile_options(std::string_view platform) {
  // executable_build_options (3) {num_replicas (4): 1, num_partitions (5): 1}
  std::string bytes = "\x1a\x04\x20\x01\x28\x01";
  // The CPU's maximum of NaN and a number is the number, unless env_option_overrides (7), entries
  // {key (1), value (2) {bool_field (2)}}, forbid it.
  if (platform == "cpu") {
    const std::string key = "xla_cpu_enable_fast_min_max", no("\x12\x02\x10\x00", 4);
    const std::string entry = fmt::format("\x0a{}{}{}", static_cast<char>(key.size()), key, no);
    bytes += fmt::format("\x3a{}{}", static_cast<char>(entry.size()), entry);
  }
  return bytes;
}

// Below this a plugin copies what it is given before it returns, and nobody waits for the device;
// above, the copy would cost more than the wait.
constexpr size_t kSmallUpload = 64 << 10;

pjrt::BufferType buffer_type(Element element) {
  switch (element) {
    case Element::kPred:
      return pjrt::kPred;
    case Element::kI8:
      return pjrt::kS8;
    case Element::kI32:
      return pjrt::kS32;
    case Element::kU32:
      return pjrt::kU32;
    case Element::kU64:
      return pjrt::kU64;
    case Element::kF16:
      return pjrt::kF16;
    case Element::kBF16:
      return pjrt::kBF16;
    case Element::kF32:
      return pjrt::kF32;
  }
  fail(adder::ErrorCode::kInternal, "pjrt executor: no element {}", static_cast<int>(element));
}

class PjrtArray final : public Array {
 public:
  PjrtArray(TypePtr array_type, std::shared_ptr<const PjrtClient> client, pjrt::Buffer* buffer)
      : Array(std::move(array_type)), client_(client), buffer_(std::move(client), buffer) {
    client_->count_array(bytes());
  }
  ~PjrtArray() override { consume(); }

  static ArrayPtr make(TypePtr type, const std::shared_ptr<const PjrtClient>& client,
                       pjrt::Buffer* buffer) {
    return std::allocate_shared<PjrtArray>(PoolAllocator<PjrtArray>(client->pool()),
                                           std::move(type), client, buffer);
  }

  // The array as one of this client's that has not been donated.
  static PjrtArray& of(Array& array, const PjrtClient& client) {
    auto* mine = dynamic_cast<PjrtArray*>(&array);
    if (mine == nullptr || mine->client_.get() != &client) {
      fail(adder::ErrorCode::kInternal, "pjrt executor: got an array of another executor");
    }
    if (mine->buffer_.get() == nullptr) {
      fail(adder::ErrorCode::kInternal, "pjrt executor: got an array that was donated before");
    }
    return *mine;
  }

  pjrt::Buffer* buffer() const { return buffer_.get(); }
  void consume() {
    if (buffer_.get() == nullptr) return;
    buffer_.reset();
    client_->count_array(-bytes());
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(type().bytes()); }

  std::shared_ptr<const PjrtClient> client_;
  PjrtBuffer buffer_;
};

class PjrtProgram final : public Executable {
 public:
  PjrtProgram(std::shared_ptr<const PjrtClient> client, PjrtLoadedExecutable loaded,
              Signature signature)
      : client_(std::move(client)), loaded_(std::move(loaded)), signature_(std::move(signature)) {
    for (size_t i = 0; i < signature_.results.size(); ++i) {
      const Type& type = signature_.results[i];
      result_types_.push_back(std::make_shared<const Type>(type));
      if (signature_.donated[i] < 0) new_bytes_ += type.bytes();
    }
  }

  void run_into(std::span<const ArrayPtr> arguments, std::vector<ArrayPtr>& results) override {
    check_arguments(arguments);
    in_.clear();
    for (const ArrayPtr& a : arguments) in_.push_back(PjrtArray::of(*a, *client_).buffer());
    out_.assign(signature_.results.size(), nullptr);
    pjrt::Buffer* const* in_list = in_.data();
    pjrt::Buffer** out_list = out_.data();

    auto options = pjrt::arguments<pjrt::ExecuteOptions>();
    auto args = pjrt::arguments<pjrt::LoadedExecutableExecuteArgs>();
    args.executable = loaded_.get();
    args.options = &options;
    args.argument_lists = &in_list;
    args.num_devices = 1;
    args.num_args = in_.size();
    args.output_lists = &out_list;
    client_->check_room(client_->api().loaded_executable_execute(&args), "run the program",
                        new_bytes_);

    results.clear();
    for (size_t i = 0; i < out_.size(); ++i) {
      results.push_back(PjrtArray::make(result_types_[i], client_, out_[i]));
    }
    for (const int32_t donated : signature_.donated) {
      if (donated < 0) continue;
      PjrtArray::of(*arguments[static_cast<size_t>(donated)], *client_).consume();
    }
  }

 private:
  void check_arguments(std::span<const ArrayPtr> arguments) const {
    const std::vector<Type>& expected = signature_.arguments;
    if (arguments.size() != expected.size()) {
      fail(adder::ErrorCode::kInternal, "pjrt executor: expected {} arguments, got {}",
           expected.size(), arguments.size());
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      if (arguments[i]->type() == expected[i]) continue;
      fail(adder::ErrorCode::kInternal, "pjrt executor: argument {}: expected {}, got {}", i,
           type_text(expected[i]), type_text(arguments[i]->type()));
    }
  }

  std::shared_ptr<const PjrtClient> client_;
  PjrtLoadedExecutable loaded_;
  Signature signature_;
  std::vector<TypePtr> result_types_;
  size_t new_bytes_ = 0;                 // of results that take over no argument's memory
  std::vector<pjrt::Buffer*> in_, out_;  // of the run
};

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What the CPU can do, by /proc/cpuinfo: a name alone hides what a virtual machine masks.
std::string cpu_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

}  // namespace

PjrtExecutor::PjrtExecutor(const Plugin& plugin, ExecutableCache cache)
    : client_(std::make_shared<PjrtClient>(plugin)),
      cache_(std::move(cache)),
      compile_options_(compile_options(client_->platform())) {
  identity_ = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", plugin.identity,
                          client_->platform(), client_->platform_version(), client_->device_kind(),
                          cpu_name(), cpu_features(), environment_value("XLA_FLAGS"),
                          environment_value("LIBTPU_INIT_ARGS"), compile_options_);
}

std::string PjrtExecutor::description() const {
  return fmt::format("xla, {} ({}), {}", client_->platform(), client_->plugin().file,
                     client_->device_kind());
}

ArrayPtr PjrtExecutor::upload_as(const TypePtr& type, std::span<const std::byte> bytes) {
  if (bytes.size() != type->bytes()) {
    fail(adder::ErrorCode::kInternal, "pjrt executor: an array of {} bytes, got {}", type->bytes(),
         bytes.size());
  }
  const bool small = bytes.size() <= kSmallUpload;
  auto args = pjrt::arguments<pjrt::BufferFromHostBufferArgs>();
  args.client = client_->get();
  args.data = bytes.data();
  args.type = buffer_type(type->element);
  args.dims = type->shape.data();
  args.num_dims = type->shape.size();
  args.semantics = small ? pjrt::kImmutableOnlyDuringCall : pjrt::kImmutableUntilTransferCompletes;
  args.device = client_->device();
  client_->check_room(client_->api().buffer_from_host_buffer(&args), "copy an array to the device",
                      bytes.size());
  ArrayPtr array = PjrtArray::make(type, client_, args.buffer);
  if (small) {
    destroy_event(client_->api(), args.done_with_host_buffer);
  } else {
    await_event(client_->api(), args.done_with_host_buffer, "copy an array to the device");
  }
  return array;
}

void PjrtExecutor::download(Array& array, std::span<std::byte> bytes) {
  const PjrtArray& mine = PjrtArray::of(array, *client_);
  if (bytes.size() != array.type().bytes()) {
    fail(adder::ErrorCode::kInternal, "pjrt executor: an array of {} bytes, got room for {}",
         array.type().bytes(), bytes.size());
  }
  // Devices lay out arrays as they like.
  minor_to_major_.clear();
  for (size_t axis = array.type().shape.size(); axis-- > 0;) {
    minor_to_major_.push_back(static_cast<int64_t>(axis));
  }
  auto layout = pjrt::arguments<pjrt::MemoryLayout>();
  layout.tiled = pjrt::arguments<pjrt::MemoryLayout::Tiled>();
  layout.tiled.minor_to_major = minor_to_major_.data();
  layout.tiled.minor_to_major_size = minor_to_major_.size();

  auto args = pjrt::arguments<pjrt::BufferToHostBufferArgs>();
  args.src = mine.buffer();
  args.host_layout = &layout;
  args.dst = bytes.data();
  args.dst_size = bytes.size();
  client_->check(client_->api().buffer_to_host_buffer(&args), "copy an array from the device");
  await_event(client_->api(), args.event, "copy an array from the device");
}

std::unique_ptr<Executable> PjrtExecutor::compile(const Program& program) {
  Signature signature;
  for (const Value v : program.main.arguments) signature.arguments.push_back(program.types[v]);
  for (const Value v : program.main.results) signature.results.push_back(program.types[v]);
  signature.donated = program.donated;
  return compile_text(stablehlo_text(program), std::move(signature));
}

std::unique_ptr<Executable> PjrtExecutor::compile_text(std::string_view text, Signature signature) {
  PjrtLoadedExecutable loaded = load_cached(text);
  const bool cached = loaded.get() != nullptr;
  if (!cached) loaded = compile_anew(text);
  const size_t outputs = count_outputs(loaded.get());
  if (outputs != signature.results.size()) {
    fail(adder::ErrorCode::kInternal, "pjrt executor: expected a program of {} results, got {}",
         signature.results.size(), outputs);
  }
  ++(cached ? from_cache_ : compiled_);
  return std::make_unique<PjrtProgram>(client_, std::move(loaded), std::move(signature));
}

PjrtLoadedExecutable PjrtExecutor::compile_anew(std::string_view text) {
  std::string code(text);  // the plugin's argument is not const
  constexpr std::string_view kFormat = "mlir";
  auto program = pjrt::arguments<pjrt::ProgramText>();
  program.code = code.data();
  program.code_size = code.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  auto args = pjrt::arguments<pjrt::ClientCompileArgs>();
  args.client = client_->get();
  args.program = &program;
  args.compile_options = compile_options_.data();
  args.compile_options_size = compile_options_.size();
  client_->check(client_->api().client_compile(&args), "compile the program");
  PjrtLoadedExecutable loaded(client_, args.executable);
  if (cache_.enabled()) store(loaded.get(), text);
  return loaded;
}

// Empty where there is no entry, or the plugin does not take it.
PjrtLoadedExecutable PjrtExecutor::load_cached(std::string_view text) {
  const auto load = client_->api().executable_deserialize_and_load;
  if (load == nullptr) return {};
  const std::string key = identity_ + std::string(text);
  const auto serialized = cache_.find(key);
  if (!serialized) return {};
  auto args = pjrt::arguments<pjrt::DeserializeAndLoadArgs>();
  args.client = client_->get();
  args.serialized = serialized->data();
  args.serialized_size = serialized->size();
  if (take_failure(client_->api(), load(&args))) {
    cache_.remove(key);
    return {};
  }
  return {client_, args.executable};
}

// Plugins that cannot serialize say so every time: then there is nothing to store.
void PjrtExecutor::store(pjrt::LoadedExecutable* loaded, std::string_view text) {
  if (client_->api().executable_serialize == nullptr) return;
  const PjrtExecutable executable = unloaded(loaded);
  auto args = pjrt::arguments<pjrt::ExecutableSerializeArgs>();
  args.executable = executable.get();
  if (take_failure(client_->api(), client_->api().executable_serialize(&args))) return;
  if (cache_.store(identity_ + std::string(text), {args.bytes, args.bytes_size})) ++stored_;
  if (args.deleter != nullptr) args.deleter(args.serialized);
}

PjrtExecutable PjrtExecutor::unloaded(pjrt::LoadedExecutable* loaded) const {
  auto args = pjrt::arguments<pjrt::LoadedExecutableGetExecutableArgs>();
  args.loaded = loaded;
  client_->check(client_->api().loaded_executable_get_executable(&args), "look at the program");
  return {client_, args.executable};
}

size_t PjrtExecutor::count_outputs(pjrt::LoadedExecutable* loaded) const {
  const PjrtExecutable executable = unloaded(loaded);
  auto args = pjrt::arguments<pjrt::ExecutableNumOutputsArgs>();
  args.executable = executable.get();
  client_->check(client_->api().executable_num_outputs(&args), "count the program's results");
  return args.num_outputs;
}

std::unique_ptr<Executor> make_pjrt_executor(std::string_view name,
                                             std::optional<uint64_t> jit_cache_mb) {
  const std::vector<std::string> candidates = plugin_candidates(name);
  std::string reasons;
  for (const std::string& path : candidates) {
    try {
      return std::make_unique<PjrtExecutor>(load_plugin(path),
                                            ExecutableCache::of_environment(jit_cache_mb));
    } catch (const Error& e) {
      if (candidates.size() == 1 || e.code() != adder::ErrorCode::kUnsupported) throw;
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", e.what());
    }
  }
  fail(adder::ErrorCode::kUnsupported, "none of {} PJRT plugins can be used: {}", candidates.size(),
       reasons);
}

}  // namespace adder::xla
