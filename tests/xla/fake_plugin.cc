// A PJRT plugin for tests of the loader and the executor. A program is text with lines "outputs N"
// and "donate I"; it gives back its first N arguments, taking the memory of the donated ones.
//
// FAKE_PJRT lists what shall go wrong, separated by ','. At load: old, future, empty, initialize.
// Later: client, no_device, compile, oom, run, run_later, no_serialize, refuse_load, no_stats.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "backends/xla/pjrt_api.h"

namespace adder::xla::pjrt {

struct Error {
  int code;
  std::string message;
};
struct Event {
  std::string failure;
};
struct Device {};
struct DeviceDescription {};
struct Client {
  std::vector<Device*> devices;
};
struct Buffer {
  std::string bytes, failure;
  bool donated = false;
};
struct Executable {
  std::string text;
};
struct LoadedExecutable {
  std::string text;
  size_t outputs = 0;
  std::set<size_t> donated;
};
struct SerializedExecutable {
  std::string bytes;
};

namespace {

std::atomic<int> live_objects = 0;  // not destroyed yet
std::atomic<int> compilations = 0;

template <typename T>
T* counted(T object) {
  ++live_objects;
  return new T(std::move(object));
}

template <typename T>
void destroy(T* object) {
  if (object == nullptr) return;
  --live_objects;
  delete object;
}

bool asked(const std::string& fault) {
  const char* list = std::getenv("FAKE_PJRT");
  std::istringstream faults(list == nullptr ? "" : list);
  for (std::string f; std::getline(faults, f, ',');) {
    if (f == fault) return true;
  }
  return false;
}

Error* error(int code, const std::string& message) {
  return counted(Error{code, message});
}

template <typename Args>
bool complete(const Args* args) {
  return args->struct_size >= sizeof(Args);
}

size_t element_size(BufferType type) {
  switch (type) {
    case kPred:
    case kS8:
      return 1;
    case kF16:
    case kBF16:
      return 2;
    case kU64:
      return 8;
    default:
      return 4;
  }
}

LoadedExecutable* load(const std::string& text) {
  LoadedExecutable program;
  program.text = text;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t number = 0;
    if (word == "outputs" && words >> number) program.outputs = number;
    if (word == "donate" && words >> number) program.donated.insert(number);
  }
  return counted(std::move(program));
}

void error_destroy(ErrorDestroyArgs* args) {
  destroy(args->error);
}

void error_message(ErrorMessageArgs* args) {
  args->message = args->error->message.data();
  args->message_size = args->error->message.size();
}

Error* error_get_code(ErrorGetCodeArgs* args) {
  args->code = args->error->code;
  return nullptr;
}

Error* plugin_initialize(PluginInitializeArgs*) {
  return asked("initialize") ? error(13, "fake: no initialization") : nullptr;
}

Error* event_destroy(EventArgs* args) {
  destroy(args->event);
  return nullptr;
}

Error* event_await(EventArgs* args) {
  return args->event->failure.empty() ? nullptr : error(13, args->event->failure);
}

Error* client_create(ClientCreateArgs* args) {
  if (!complete(args)) return error(3, "fake: ClientCreateArgs");
  if (asked("client")) return error(14, "fake: no device\nis here");
  static Device device;
  args->client = counted(Client{});
  if (!asked("no_device")) args->client->devices.push_back(&device);
  return nullptr;
}

Error* client_destroy(ClientDestroyArgs* args) {
  destroy(args->client);
  return nullptr;
}

Error* platform_name(ClientTextArgs* args) {
  args->text = "fake";
  args->text_size = 4;
  return nullptr;
}

Error* platform_version(ClientTextArgs* args) {
  const char* version = std::getenv("FAKE_PJRT_VERSION");
  args->text = version == nullptr ? "1" : version;
  args->text_size = std::strlen(args->text);
  return nullptr;
}

Error* addressable_devices(ClientAddressableDevicesArgs* args) {
  args->devices = args->client->devices.data();
  args->num_devices = args->client->devices.size();
  return nullptr;
}

Error* get_description(DeviceGetDescriptionArgs* args) {
  static DeviceDescription description;
  args->description = &description;
  return nullptr;
}

Error* description_kind(DeviceDescriptionKindArgs* args) {
  args->kind = "abacus";
  args->kind_size = 6;
  return nullptr;
}

Error* memory_stats(DeviceMemoryStatsArgs* args) {
  if (!complete(args)) return error(3, "fake: DeviceMemoryStatsArgs");
  if (asked("no_stats")) return error(kUnimplemented, "fake: no statistics");
  args->bytes_in_use = 1000;
  args->bytes_limit = {5000, true};
  return nullptr;
}

Error* compile(ClientCompileArgs* args) {
  if (asked("compile")) return error(3, "fake: cannot parse");
  if (std::string_view(args->program->format, args->program->format_size) != "mlir") {
    return error(3, "fake: expected mlir");
  }
  if (std::string_view(args->compile_options, args->compile_options_size) != "\x1a\x04 \x01(\x01") {
    return error(3, "fake: expected one replica and one partition");
  }
  ++compilations;
  args->executable = load({args->program->code, args->program->code_size});
  return nullptr;
}

Error* from_host(BufferFromHostBufferArgs* args) {
  if (!complete(args)) return error(3, "fake: BufferFromHostBufferArgs");
  if (asked("oom")) return error(kResourceExhausted, "fake: 5 of 5 bytes used");
  size_t bytes = element_size(args->type);
  for (size_t i = 0; i < args->num_dims; ++i) bytes *= static_cast<size_t>(args->dims[i]);
  args->buffer = counted(Buffer{std::string(static_cast<const char*>(args->data), bytes), ""});
  args->done_with_host_buffer = counted(Event{});
  return nullptr;
}

Error* to_host(BufferToHostBufferArgs* args) {
  if (args->src->donated) return error(9, "fake: the buffer was donated");
  if (args->host_layout == nullptr || args->host_layout->kind != MemoryLayout::kTiled) {
    return error(3, "fake: expected a layout");
  }
  if (args->dst_size < args->src->bytes.size()) return error(3, "fake: expected more room");
  if (!args->src->bytes.empty()) {
    std::memcpy(args->dst, args->src->bytes.data(), args->src->bytes.size());
  }
  args->event = counted(Event{args->src->failure});
  return nullptr;
}

Error* buffer_destroy(BufferDestroyArgs* args) {
  destroy(args->buffer);
  return nullptr;
}

Error* executable_destroy(ExecutableDestroyArgs* args) {
  destroy(args->executable);
  return nullptr;
}

Error* num_outputs(ExecutableNumOutputsArgs* args) {
  LoadedExecutable* program = load(args->executable->text);
  args->num_outputs = program->outputs;
  destroy(program);
  return nullptr;
}

Error* serialize(ExecutableSerializeArgs* args) {
  if (asked("no_serialize")) return error(kUnimplemented, "fake: no serialization");
  args->serialized = counted(SerializedExecutable{"FAKE" + args->executable->text});
  args->bytes = args->serialized->bytes.data();
  args->bytes_size = args->serialized->bytes.size();
  args->deleter = [](SerializedExecutable* s) { destroy(s); };
  return nullptr;
}

Error* deserialize(DeserializeAndLoadArgs* args) {
  if (!complete(args)) return error(3, "fake: DeserializeAndLoadArgs");
  const std::string bytes(args->serialized, args->serialized_size);
  if (!bytes.starts_with("FAKE") || asked("refuse_load")) return error(3, "fake: not mine");
  args->executable = load(bytes.substr(4));
  return nullptr;
}

Error* loaded_destroy(LoadedExecutableDestroyArgs* args) {
  destroy(args->executable);
  return nullptr;
}

Error* get_executable(LoadedExecutableGetExecutableArgs* args) {
  args->executable = counted(Executable{args->loaded->text});
  return nullptr;
}

Error* execute(LoadedExecutableExecuteArgs* args) {
  if (!complete(args) || !complete(args->options)) return error(3, "fake: ExecuteArgs");
  if (asked("run")) return error(kResourceExhausted, "fake: no room for the results");
  for (size_t i = 0; i < args->executable->outputs; ++i) {
    Buffer* in = args->argument_lists[0][i];
    Buffer out = *in;
    if (args->executable->donated.contains(i)) in->donated = true;
    if (asked("run_later")) out.failure = "fake: the device failed";
    args->output_lists[0][i] = counted(std::move(out));
  }
  return nullptr;
}

Api make_api() {
  Api api = {};
  api.struct_size = sizeof(Api);
  api.version = {sizeof(ApiVersion), nullptr, kMajor, kLeastMinor};
  if (asked("old")) api.version.minor = kLeastMinor - 1;
  if (asked("future")) api.version.major = kMajor + 1;
  if (asked("empty")) return api;
  api.error_destroy = error_destroy;
  api.error_message = error_message;
  api.error_get_code = error_get_code;
  api.plugin_initialize = plugin_initialize;
  api.event_destroy = event_destroy;
  api.event_await = event_await;
  api.client_create = client_create;
  api.client_destroy = client_destroy;
  api.client_platform_name = platform_name;
  api.client_platform_version = platform_version;
  api.client_addressable_devices = addressable_devices;
  api.client_compile = compile;
  api.buffer_from_host_buffer = from_host;
  api.device_description_kind = description_kind;
  api.device_get_description = get_description;
  api.device_memory_stats = memory_stats;
  api.executable_destroy = executable_destroy;
  api.executable_num_outputs = num_outputs;
  api.executable_serialize = serialize;
  api.loaded_executable_destroy = loaded_destroy;
  api.loaded_executable_get_executable = get_executable;
  api.loaded_executable_execute = execute;
  api.executable_deserialize_and_load = deserialize;
  api.buffer_destroy = buffer_destroy;
  api.buffer_to_host_buffer = to_host;
  return api;
}

}  // namespace
}  // namespace adder::xla::pjrt

extern "C" {

const adder::xla::pjrt::Api* GetPjrtApi() {
  static const adder::xla::pjrt::Api api = adder::xla::pjrt::make_api();
  return &api;
}

int fake_pjrt_live_objects() {
  return adder::xla::pjrt::live_objects;
}
int fake_pjrt_compilations() {
  return adder::xla::pjrt::compilations;
}

}  // extern "C"
