// The calls of the PJRT C API that compile for devices which are not there.
#pragma once

#include "backends/xla/pjrt_api.h"

namespace adder::xla::pjrt {

struct Topology;

struct TopologyCreateArgs {
  size_t struct_size;
  void* extensions;
  const char* name;
  size_t name_size;
  const void* create_options;
  size_t num_options;
  Topology* topology;  // out
};

struct CompileArgs {
  size_t struct_size;
  void* extensions;
  const Topology* topology;
  const ProgramText* program;
  const char* compile_options;
  size_t compile_options_size;
  Client* client;
  Executable* executable;  // out
};

struct MemoryStatsArgs {
  size_t struct_size;
  void* extensions;
  Executable* executable;
  int64_t code, arguments, results, aliased, temporary;  // out, bytes
  int64_t host[5];
  int64_t peak[5];
};

// The table goes on behind what the executor needs of it.
struct CompilerApi {
  Api api;
  Unused buffer[6], copy_stream[5];
  Call<TopologyCreateArgs> topology_create;
  Unused topology[6];
  Call<CompileArgs> compile;
  Unused output_types, output_dimensions, copy_to_memory, view_of_buffer, fingerprint;
  Unused client_topology;
  Call<MemoryStatsArgs> memory_stats;
};

}  // namespace adder::xla::pjrt
