// Compares backends/xla/pjrt_api.h with the official header of the PJRT C API, at compile time:
// built where cmake is given -DADDER_PJRT_HEADER_DIR=<the folder of pjrt_c_api.h>.
#include "backends/xla/pjrt_api.h"
#include "pjrt_c_api.h"
#include "testing/pjrt_compiler.h"

namespace pjrt = adder::xla::pjrt;

static_assert(PJRT_API_MAJOR == pjrt::kMajor);
static_assert(PJRT_API_MINOR >= pjrt::kLeastMinor);

#define SAME_FIELD(ours, field, theirs, their_field)                           \
  static_assert(offsetof(pjrt::ours, field) == offsetof(theirs, their_field)); \
  static_assert(sizeof(pjrt::ours::field) == sizeof(theirs::their_field))

// Of a struct whose last field is given, every field before it has its place by the sizes between;
// ours may know fields at the end that an older header does not.
#define SAME_STRUCT(ours, field, theirs, their_field)    \
  SAME_FIELD(ours, struct_size, theirs, struct_size);    \
  SAME_FIELD(ours, extensions, theirs, extension_start); \
  SAME_FIELD(ours, field, theirs, their_field);          \
  static_assert(sizeof(pjrt::ours) >= sizeof(theirs))

SAME_STRUCT(ErrorDestroyArgs, error, PJRT_Error_Destroy_Args, error);
SAME_STRUCT(ErrorMessageArgs, error, PJRT_Error_Message_Args, error);
SAME_FIELD(ErrorMessageArgs, message, PJRT_Error_Message_Args, message);
SAME_FIELD(ErrorMessageArgs, message_size, PJRT_Error_Message_Args, message_size);
SAME_STRUCT(ErrorGetCodeArgs, error, PJRT_Error_GetCode_Args, error);
SAME_FIELD(ErrorGetCodeArgs, code, PJRT_Error_GetCode_Args, code);
static_assert(sizeof(pjrt::PluginInitializeArgs) == sizeof(PJRT_Plugin_Initialize_Args));
SAME_STRUCT(EventArgs, event, PJRT_Event_Destroy_Args, event);
SAME_STRUCT(EventArgs, event, PJRT_Event_Await_Args, event);
SAME_STRUCT(ClientCreateArgs, client, PJRT_Client_Create_Args, client);
SAME_FIELD(ClientCreateArgs, create_options, PJRT_Client_Create_Args, create_options);
SAME_FIELD(ClientCreateArgs, num_options, PJRT_Client_Create_Args, num_options);
SAME_FIELD(ClientCreateArgs, get_callback, PJRT_Client_Create_Args, kv_get_callback);
SAME_FIELD(ClientCreateArgs, put_callback, PJRT_Client_Create_Args, kv_put_callback);
SAME_FIELD(ClientCreateArgs, try_get_callback, PJRT_Client_Create_Args, kv_try_get_callback);
SAME_STRUCT(ClientDestroyArgs, client, PJRT_Client_Destroy_Args, client);
SAME_STRUCT(ClientTextArgs, client, PJRT_Client_PlatformName_Args, client);
SAME_FIELD(ClientTextArgs, text, PJRT_Client_PlatformName_Args, platform_name);
SAME_FIELD(ClientTextArgs, text_size, PJRT_Client_PlatformName_Args, platform_name_size);
SAME_FIELD(ClientTextArgs, text, PJRT_Client_PlatformVersion_Args, platform_version);
SAME_FIELD(ClientTextArgs, text_size, PJRT_Client_PlatformVersion_Args, platform_version_size);
SAME_STRUCT(ClientAddressableDevicesArgs, client, PJRT_Client_AddressableDevices_Args, client);
SAME_FIELD(ClientAddressableDevicesArgs, devices, PJRT_Client_AddressableDevices_Args,
           addressable_devices);
SAME_FIELD(ClientAddressableDevicesArgs, num_devices, PJRT_Client_AddressableDevices_Args,
           num_addressable_devices);
SAME_STRUCT(ProgramText, code, PJRT_Program, code);
SAME_FIELD(ProgramText, code_size, PJRT_Program, code_size);
SAME_FIELD(ProgramText, format, PJRT_Program, format);
SAME_FIELD(ProgramText, format_size, PJRT_Program, format_size);
SAME_STRUCT(ClientCompileArgs, client, PJRT_Client_Compile_Args, client);
SAME_FIELD(ClientCompileArgs, program, PJRT_Client_Compile_Args, program);
SAME_FIELD(ClientCompileArgs, compile_options, PJRT_Client_Compile_Args, compile_options);
SAME_FIELD(ClientCompileArgs, compile_options_size, PJRT_Client_Compile_Args, compile_options_size);
SAME_FIELD(ClientCompileArgs, executable, PJRT_Client_Compile_Args, executable);
SAME_STRUCT(MemoryLayout, tiled, PJRT_Buffer_MemoryLayout, tiled);
SAME_FIELD(MemoryLayout, kind, PJRT_Buffer_MemoryLayout, type);
SAME_STRUCT(MemoryLayout::Tiled, minor_to_major, PJRT_Buffer_MemoryLayout_Tiled, minor_to_major);
SAME_FIELD(MemoryLayout::Tiled, minor_to_major_size, PJRT_Buffer_MemoryLayout_Tiled,
           minor_to_major_size);
SAME_FIELD(MemoryLayout::Tiled, num_tiles, PJRT_Buffer_MemoryLayout_Tiled, num_tiles);
SAME_STRUCT(BufferFromHostBufferArgs, client, PJRT_Client_BufferFromHostBuffer_Args, client);
SAME_FIELD(BufferFromHostBufferArgs, data, PJRT_Client_BufferFromHostBuffer_Args, data);
SAME_FIELD(BufferFromHostBufferArgs, type, PJRT_Client_BufferFromHostBuffer_Args, type);
SAME_FIELD(BufferFromHostBufferArgs, dims, PJRT_Client_BufferFromHostBuffer_Args, dims);
SAME_FIELD(BufferFromHostBufferArgs, num_dims, PJRT_Client_BufferFromHostBuffer_Args, num_dims);
SAME_FIELD(BufferFromHostBufferArgs, num_byte_strides, PJRT_Client_BufferFromHostBuffer_Args,
           num_byte_strides);
SAME_FIELD(BufferFromHostBufferArgs, semantics, PJRT_Client_BufferFromHostBuffer_Args,
           host_buffer_semantics);
SAME_FIELD(BufferFromHostBufferArgs, device, PJRT_Client_BufferFromHostBuffer_Args, device);
SAME_FIELD(BufferFromHostBufferArgs, memory, PJRT_Client_BufferFromHostBuffer_Args, memory);
SAME_FIELD(BufferFromHostBufferArgs, device_layout, PJRT_Client_BufferFromHostBuffer_Args,
           device_layout);
SAME_FIELD(BufferFromHostBufferArgs, done_with_host_buffer, PJRT_Client_BufferFromHostBuffer_Args,
           done_with_host_buffer);
SAME_FIELD(BufferFromHostBufferArgs, buffer, PJRT_Client_BufferFromHostBuffer_Args, buffer);
SAME_STRUCT(DeviceGetDescriptionArgs, device, PJRT_Device_GetDescription_Args, device);
SAME_FIELD(DeviceGetDescriptionArgs, description, PJRT_Device_GetDescription_Args,
           device_description);
SAME_STRUCT(DeviceDescriptionKindArgs, description, PJRT_DeviceDescription_Kind_Args,
            device_description);
SAME_FIELD(DeviceDescriptionKindArgs, kind, PJRT_DeviceDescription_Kind_Args, device_kind);
SAME_FIELD(DeviceDescriptionKindArgs, kind_size, PJRT_DeviceDescription_Kind_Args,
           device_kind_size);
SAME_STRUCT(DeviceMemoryStatsArgs, device, PJRT_Device_MemoryStats_Args, device);
SAME_FIELD(DeviceMemoryStatsArgs, bytes_in_use, PJRT_Device_MemoryStats_Args, bytes_in_use);
SAME_FIELD(DeviceMemoryStatsArgs, bytes_limit.value, PJRT_Device_MemoryStats_Args, bytes_limit);
SAME_FIELD(DeviceMemoryStatsArgs, bytes_limit.is_set, PJRT_Device_MemoryStats_Args,
           bytes_limit_is_set);
SAME_FIELD(DeviceMemoryStatsArgs, peak_pool_bytes.is_set, PJRT_Device_MemoryStats_Args,
           peak_pool_bytes_is_set);
SAME_STRUCT(ExecutableDestroyArgs, executable, PJRT_Executable_Destroy_Args, executable);
SAME_STRUCT(ExecutableNumOutputsArgs, executable, PJRT_Executable_NumOutputs_Args, executable);
SAME_FIELD(ExecutableNumOutputsArgs, num_outputs, PJRT_Executable_NumOutputs_Args, num_outputs);
SAME_STRUCT(ExecutableSerializeArgs, executable, PJRT_Executable_Serialize_Args, executable);
SAME_FIELD(ExecutableSerializeArgs, bytes, PJRT_Executable_Serialize_Args, serialized_bytes);
SAME_FIELD(ExecutableSerializeArgs, bytes_size, PJRT_Executable_Serialize_Args,
           serialized_bytes_size);
SAME_FIELD(ExecutableSerializeArgs, serialized, PJRT_Executable_Serialize_Args,
           serialized_executable);
SAME_FIELD(ExecutableSerializeArgs, deleter, PJRT_Executable_Serialize_Args,
           serialized_executable_deleter);
SAME_STRUCT(LoadedExecutableDestroyArgs, executable, PJRT_LoadedExecutable_Destroy_Args,
            executable);
SAME_STRUCT(LoadedExecutableGetExecutableArgs, loaded, PJRT_LoadedExecutable_GetExecutable_Args,
            loaded_executable);
SAME_FIELD(LoadedExecutableGetExecutableArgs, executable, PJRT_LoadedExecutable_GetExecutable_Args,
           executable);
SAME_STRUCT(ExecuteOptions, send_callbacks, PJRT_ExecuteOptions, send_callbacks);
SAME_FIELD(ExecuteOptions, launch_id, PJRT_ExecuteOptions, launch_id);
SAME_FIELD(ExecuteOptions, non_donatable_input_indices, PJRT_ExecuteOptions,
           non_donatable_input_indices);
SAME_FIELD(ExecuteOptions, context, PJRT_ExecuteOptions, context);
SAME_FIELD(ExecuteOptions, call_location, PJRT_ExecuteOptions, call_location);
SAME_FIELD(ExecuteOptions, incarnation_ids, PJRT_ExecuteOptions, incarnation_ids);
SAME_STRUCT(LoadedExecutableExecuteArgs, executable, PJRT_LoadedExecutable_Execute_Args,
            executable);
SAME_FIELD(LoadedExecutableExecuteArgs, options, PJRT_LoadedExecutable_Execute_Args, options);
SAME_FIELD(LoadedExecutableExecuteArgs, argument_lists, PJRT_LoadedExecutable_Execute_Args,
           argument_lists);
SAME_FIELD(LoadedExecutableExecuteArgs, num_devices, PJRT_LoadedExecutable_Execute_Args,
           num_devices);
SAME_FIELD(LoadedExecutableExecuteArgs, num_args, PJRT_LoadedExecutable_Execute_Args, num_args);
SAME_FIELD(LoadedExecutableExecuteArgs, output_lists, PJRT_LoadedExecutable_Execute_Args,
           output_lists);
SAME_FIELD(LoadedExecutableExecuteArgs, device_complete_events, PJRT_LoadedExecutable_Execute_Args,
           device_complete_events);
SAME_FIELD(LoadedExecutableExecuteArgs, execute_device, PJRT_LoadedExecutable_Execute_Args,
           execute_device);
SAME_STRUCT(DeserializeAndLoadArgs, client, PJRT_Executable_DeserializeAndLoad_Args, client);
SAME_FIELD(DeserializeAndLoadArgs, serialized, PJRT_Executable_DeserializeAndLoad_Args,
           serialized_executable);
SAME_FIELD(DeserializeAndLoadArgs, serialized_size, PJRT_Executable_DeserializeAndLoad_Args,
           serialized_executable_size);
SAME_FIELD(DeserializeAndLoadArgs, executable, PJRT_Executable_DeserializeAndLoad_Args,
           loaded_executable);
SAME_FIELD(DeserializeAndLoadArgs, compile_options, PJRT_Executable_DeserializeAndLoad_Args,
           overridden_serialized_compile_options);
SAME_STRUCT(BufferDestroyArgs, buffer, PJRT_Buffer_Destroy_Args, buffer);
SAME_STRUCT(BufferToHostBufferArgs, src, PJRT_Buffer_ToHostBuffer_Args, src);
SAME_FIELD(BufferToHostBufferArgs, host_layout, PJRT_Buffer_ToHostBuffer_Args, host_layout);
SAME_FIELD(BufferToHostBufferArgs, dst, PJRT_Buffer_ToHostBuffer_Args, dst);
SAME_FIELD(BufferToHostBufferArgs, dst_size, PJRT_Buffer_ToHostBuffer_Args, dst_size);
SAME_FIELD(BufferToHostBufferArgs, event, PJRT_Buffer_ToHostBuffer_Args, event);

SAME_FIELD(Api, struct_size, PJRT_Api, struct_size);
SAME_FIELD(Api, version, PJRT_Api, pjrt_api_version);
SAME_FIELD(ApiVersion, major, PJRT_Api_Version, major_version);
SAME_FIELD(ApiVersion, minor, PJRT_Api_Version, minor_version);
SAME_FIELD(Api, error_destroy, PJRT_Api, PJRT_Error_Destroy);
SAME_FIELD(Api, error_message, PJRT_Api, PJRT_Error_Message);
SAME_FIELD(Api, error_get_code, PJRT_Api, PJRT_Error_GetCode);
SAME_FIELD(Api, plugin_initialize, PJRT_Api, PJRT_Plugin_Initialize);
SAME_FIELD(Api, event_destroy, PJRT_Api, PJRT_Event_Destroy);
SAME_FIELD(Api, event_await, PJRT_Api, PJRT_Event_Await);
SAME_FIELD(Api, client_create, PJRT_Api, PJRT_Client_Create);
SAME_FIELD(Api, client_destroy, PJRT_Api, PJRT_Client_Destroy);
SAME_FIELD(Api, client_platform_name, PJRT_Api, PJRT_Client_PlatformName);
SAME_FIELD(Api, client_platform_version, PJRT_Api, PJRT_Client_PlatformVersion);
SAME_FIELD(Api, client_addressable_devices, PJRT_Api, PJRT_Client_AddressableDevices);
SAME_FIELD(Api, client_compile, PJRT_Api, PJRT_Client_Compile);
SAME_FIELD(Api, buffer_from_host_buffer, PJRT_Api, PJRT_Client_BufferFromHostBuffer);
SAME_FIELD(Api, device_description_kind, PJRT_Api, PJRT_DeviceDescription_Kind);
SAME_FIELD(Api, device_get_description, PJRT_Api, PJRT_Device_GetDescription);
SAME_FIELD(Api, device_memory_stats, PJRT_Api, PJRT_Device_MemoryStats);
SAME_FIELD(Api, executable_destroy, PJRT_Api, PJRT_Executable_Destroy);
SAME_FIELD(Api, executable_num_outputs, PJRT_Api, PJRT_Executable_NumOutputs);
SAME_FIELD(Api, executable_serialize, PJRT_Api, PJRT_Executable_Serialize);
SAME_FIELD(Api, loaded_executable_destroy, PJRT_Api, PJRT_LoadedExecutable_Destroy);
SAME_FIELD(Api, loaded_executable_get_executable, PJRT_Api, PJRT_LoadedExecutable_GetExecutable);
SAME_FIELD(Api, loaded_executable_execute, PJRT_Api, PJRT_LoadedExecutable_Execute);
SAME_FIELD(Api, executable_deserialize_and_load, PJRT_Api, PJRT_Executable_DeserializeAndLoad);
SAME_FIELD(Api, buffer_destroy, PJRT_Api, PJRT_Buffer_Destroy);
SAME_FIELD(Api, buffer_to_host_buffer, PJRT_Api, PJRT_Buffer_ToHostBuffer);

SAME_STRUCT(TopologyCreateArgs, name, PJRT_TopologyDescription_Create_Args, topology_name);
SAME_FIELD(TopologyCreateArgs, topology, PJRT_TopologyDescription_Create_Args, topology);
SAME_STRUCT(CompileArgs, topology, PJRT_Compile_Args, topology);
SAME_FIELD(CompileArgs, program, PJRT_Compile_Args, program);
SAME_FIELD(CompileArgs, client, PJRT_Compile_Args, client);
SAME_FIELD(CompileArgs, executable, PJRT_Compile_Args, executable);
SAME_STRUCT(MemoryStatsArgs, executable, PJRT_Executable_GetCompiledMemoryStats_Args, executable);
SAME_FIELD(MemoryStatsArgs, code, PJRT_Executable_GetCompiledMemoryStats_Args,
           generated_code_size_in_bytes);
SAME_FIELD(MemoryStatsArgs, temporary, PJRT_Executable_GetCompiledMemoryStats_Args,
           temp_size_in_bytes);
SAME_FIELD(CompilerApi, topology_create, PJRT_Api, PJRT_TopologyDescription_Create);
SAME_FIELD(CompilerApi, compile, PJRT_Api, PJRT_Compile);
SAME_FIELD(CompilerApi, memory_stats, PJRT_Api, PJRT_Executable_GetCompiledMemoryStats);

static_assert(int{pjrt::kResourceExhausted} == PJRT_Error_Code_RESOURCE_EXHAUSTED);
static_assert(int{pjrt::kUnimplemented} == PJRT_Error_Code_UNIMPLEMENTED);
static_assert(int{pjrt::kPred} == PJRT_Buffer_Type_PRED);
static_assert(int{pjrt::kS8} == PJRT_Buffer_Type_S8);
static_assert(int{pjrt::kS32} == PJRT_Buffer_Type_S32);
static_assert(int{pjrt::kU32} == PJRT_Buffer_Type_U32);
static_assert(int{pjrt::kU64} == PJRT_Buffer_Type_U64);
static_assert(int{pjrt::kF16} == PJRT_Buffer_Type_F16);
static_assert(int{pjrt::kF32} == PJRT_Buffer_Type_F32);
static_assert(int{pjrt::kBF16} == PJRT_Buffer_Type_BF16);
static_assert(int{pjrt::kImmutableOnlyDuringCall} ==
              PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
static_assert(int{pjrt::kImmutableUntilTransferCompletes} ==
              PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes);
static_assert(int{pjrt::MemoryLayout::kTiled} == PJRT_Buffer_MemoryLayout_Type_Tiled);
