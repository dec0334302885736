// The calls of the PJRT C API (openxla.org/xla/pjrt) that the executor makes, declared anew: the
// order of the table and the layout of the arguments are those of version 0.114, and are the same
// in all versions from 0.81 on as far as those know them. tests/xla/pjrt_header_check.cc compares
// them with the official header.
//
// Each side of a call says by struct_size how much of an argument it knows. A plugin that knows
// less ignores the rest; one that knows more takes its defaults. Fields marked "out" are written by
// the plugin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adder::xla::pjrt {

inline constexpr int kMajor = 0;
// The oldest version that this code has been run with.
inline constexpr int kLeastMinor = 81;

struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Buffer;
struct Executable;        // a compiled program
struct LoadedExecutable;  // the same, on its devices
struct SerializedExecutable;

enum ErrorCode : int { kResourceExhausted = 8, kUnimplemented = 12 };

enum BufferType : int {
  kPred = 1,
  kS8 = 2,
  kS32 = 4,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kBF16 = 13
};

enum HostBufferSemantics : int {
  kImmutableOnlyDuringCall = 0,  // the plugin copies before it returns
  kImmutableUntilTransferCompletes = 1
};

struct ErrorDestroyArgs {
  size_t struct_size;
  void* extensions;
  Error* error;
};

struct ErrorMessageArgs {
  size_t struct_size;
  void* extensions;
  const Error* error;
  const char* message;  // out; lives as long as the error
  size_t message_size;  // out
};

struct ErrorGetCodeArgs {
  size_t struct_size;
  void* extensions;
  const Error* error;
  int code;  // out
};

struct PluginInitializeArgs {
  size_t struct_size;
  void* extensions;
};

struct EventArgs {  // of destroy and await
  size_t struct_size;
  void* extensions;
  Event* event;
};

struct ClientCreateArgs {
  size_t struct_size;
  void* extensions;
  const void* create_options;
  size_t num_options;
  void* get_callback;  // the callbacks are for clients of several processes
  void* get_argument;
  void* put_callback;
  void* put_argument;
  Client* client;  // out
  void* try_get_callback;
  void* try_get_argument;
};

struct ClientDestroyArgs {
  size_t struct_size;
  void* extensions;
  Client* client;
};

struct ClientTextArgs {  // of platform name and platform version
  size_t struct_size;
  void* extensions;
  Client* client;
  const char* text;  // out; lives as long as the client
  size_t text_size;  // out
};

struct ClientAddressableDevicesArgs {
  size_t struct_size;
  void* extensions;
  Client* client;
  Device* const* devices;  // out
  size_t num_devices;      // out
};

struct ProgramText {
  size_t struct_size;
  void* extensions;
  char* code;
  size_t code_size;
  const char* format;  // "mlir"
  size_t format_size;
};

struct ClientCompileArgs {
  size_t struct_size;
  void* extensions;
  Client* client;
  const ProgramText* program;
  const char* compile_options;  // a serialized CompileOptionsProto
  size_t compile_options_size;
  LoadedExecutable* executable;  // out
};

struct MemoryLayout {
  enum Kind : int { kTiled = 0, kStrides = 1 };
  struct Tiled {
    size_t struct_size;
    void* extensions;
    const int64_t* minor_to_major;  // {rank - 1, ..., 0}: rows one after another
    size_t minor_to_major_size;
    const int64_t* tile_dims;
    const size_t* tile_dim_sizes;
    size_t num_tiles;
  };

  size_t struct_size;
  void* extensions;
  Tiled tiled;
  Kind kind;
};

struct BufferFromHostBufferArgs {
  size_t struct_size;
  void* extensions;
  Client* client;
  const void* data;
  BufferType type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;  // none: rows one after another
  size_t num_byte_strides;
  HostBufferSemantics semantics;
  Device* device;
  void* memory;                  // none: the device's own
  MemoryLayout* device_layout;   // none: the device's own
  Event* done_with_host_buffer;  // out
  Buffer* buffer;                // out
};

struct DeviceGetDescriptionArgs {
  size_t struct_size;
  void* extensions;
  Device* device;
  DeviceDescription* description;  // out
};

struct DeviceDescriptionKindArgs {
  size_t struct_size;
  void* extensions;
  DeviceDescription* description;
  const char* kind;  // out; lives as long as the device
  size_t kind_size;  // out
};

struct MemoryStat {
  int64_t value;
  bool is_set;
};

struct DeviceMemoryStatsArgs {
  size_t struct_size;
  void* extensions;
  Device* device;
  int64_t bytes_in_use;  // out, and so are all that follow
  MemoryStat peak_bytes_in_use;
  MemoryStat num_allocs;
  MemoryStat largest_alloc_size;
  MemoryStat bytes_limit;
  MemoryStat bytes_reserved;
  MemoryStat peak_bytes_reserved;
  MemoryStat bytes_reservable_limit;
  MemoryStat largest_free_block_bytes;
  MemoryStat pool_bytes;
  MemoryStat peak_pool_bytes;
  MemoryStat peak_allocated_bytes;
};

struct ExecutableDestroyArgs {
  size_t struct_size;
  void* extensions;
  Executable* executable;
};

struct ExecutableNumOutputsArgs {
  size_t struct_size;
  void* extensions;
  Executable* executable;
  size_t num_outputs;  // out
};

struct ExecutableSerializeArgs {
  size_t struct_size;
  void* extensions;
  const Executable* executable;
  const char* bytes;                         // out; live as long as `serialized`
  size_t bytes_size;                         // out
  SerializedExecutable* serialized;          // out
  void (*deleter)(SerializedExecutable* s);  // out
};

struct LoadedExecutableDestroyArgs {
  size_t struct_size;
  void* extensions;
  LoadedExecutable* executable;
};

struct LoadedExecutableGetExecutableArgs {
  size_t struct_size;
  void* extensions;
  LoadedExecutable* loaded;
  Executable* executable;  // out; to be destroyed by the caller
};

struct ExecuteOptions {
  size_t struct_size;
  void* extensions;
  void* send_callbacks;
  void* recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void* context;
  const char* call_location;
  size_t num_tasks;
  int* task_ids;
  int64_t* incarnation_ids;
  void* multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks;
  void* hlo_output_callbacks;
  size_t num_hlo_output_callbacks;
};

struct LoadedExecutableExecuteArgs {
  size_t struct_size;
  void* extensions;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* argument_lists;  // (num_devices, num_args)
  size_t num_devices;
  size_t num_args;
  Buffer** const* output_lists;    // (num_devices, outputs of the program): the plugin fills them
  Event** device_complete_events;  // none: nobody waits for the end
  Device* execute_device;          // none: as compiled
};

struct DeserializeAndLoadArgs {
  size_t struct_size;
  void* extensions;
  Client* client;
  const char* serialized;
  size_t serialized_size;
  LoadedExecutable* executable;  // out
  const char* compile_options;   // none: those of the serialized program
  size_t compile_options_size;
  void* load_options;
};

struct BufferDestroyArgs {
  size_t struct_size;
  void* extensions;
  Buffer* buffer;
};

struct BufferToHostBufferArgs {
  size_t struct_size;
  void* extensions;
  Buffer* src;
  MemoryLayout* host_layout;  // none: that of the device
  void* dst;
  size_t dst_size;
  Event* event;  // out: the copy is there
};

struct ApiVersion {
  size_t struct_size;
  void* extensions;
  int major;
  int minor;
};

using Unused = void*;
template <typename Args>
using Call = Error* (*)(Args*);

// What GetPjrtApi() points to; it lives as long as the process.
struct Api {
  size_t struct_size;
  void* extensions;
  ApiVersion version;

  void (*error_destroy)(ErrorDestroyArgs*);
  void (*error_message)(ErrorMessageArgs*);
  Call<ErrorGetCodeArgs> error_get_code;
  Call<PluginInitializeArgs> plugin_initialize;
  Unused plugin_attributes;
  Call<EventArgs> event_destroy;
  Unused event_is_ready, event_error;
  Call<EventArgs> event_await;
  Unused event_on_ready;
  Call<ClientCreateArgs> client_create;
  Call<ClientDestroyArgs> client_destroy;
  Call<ClientTextArgs> client_platform_name;
  Unused client_process_index;
  Call<ClientTextArgs> client_platform_version;
  Unused client_devices;
  Call<ClientAddressableDevicesArgs> client_addressable_devices;
  Unused client_lookup[2], client_addressable_memories;
  Call<ClientCompileArgs> client_compile;
  Unused client_default_device_assignment;
  Call<BufferFromHostBufferArgs> buffer_from_host_buffer;
  Unused description_id, description_process_index, description_attributes;
  Call<DeviceDescriptionKindArgs> device_description_kind;
  Unused description_debug_string, description_to_string;
  Call<DeviceGetDescriptionArgs> device_get_description;
  Unused device_is_addressable, device_local_hardware_id, device_memories[2];
  Call<DeviceMemoryStatsArgs> device_memory_stats;
  Unused memory[5];
  Call<ExecutableDestroyArgs> executable_destroy;
  Unused executable_name, executable_num_replicas, executable_num_partitions;
  Call<ExecutableNumOutputsArgs> executable_num_outputs;
  Unused executable_code_size, executable_cost_analysis, executable_memory_kinds;
  Unused executable_optimized_program;
  Call<ExecutableSerializeArgs> executable_serialize;
  Call<LoadedExecutableDestroyArgs> loaded_executable_destroy;
  Call<LoadedExecutableGetExecutableArgs> loaded_executable_get_executable;
  Unused loaded_executable_devices, loaded_executable_delete, loaded_executable_is_deleted;
  Call<LoadedExecutableExecuteArgs> loaded_executable_execute;
  Call<DeserializeAndLoadArgs> executable_deserialize_and_load;
  Unused loaded_executable_fingerprint;
  Call<BufferDestroyArgs> buffer_destroy;
  Unused buffer_properties[11];
  Call<BufferToHostBufferArgs> buffer_to_host_buffer;
  // Newer calls follow.
};

// Arguments of a call, all zero but their size.
template <typename Args>
Args arguments() {
  Args args = {};
  args.struct_size = sizeof(Args);
  return args;
}

}  // namespace adder::xla::pjrt
