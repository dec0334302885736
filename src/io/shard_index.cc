#include "io/shard_index.h"

#include <string_view>

#include "core/error.h"
#include "io/json_lenient.h"
#include "io/printable.h"

namespace adder {
namespace {

// A hostile index could otherwise make the loader open any file of the machine.
bool stays_in_directory(std::string_view file) {
  return is_sane_name(file) && file != "." && file != ".." && file.find('/') == file.npos &&
         file.find('\\') == file.npos;
}

}  // namespace

std::map<std::string, std::vector<std::string>> read_shard_index(const std::string& path) {
  const JsonValue index = JsonValue::parse_file(path);
  const auto weight_map = index.get_object("weight_map");
  if (!weight_map) bad_input("{}: field 'weight_map' is missing", path);
  std::map<std::string, std::vector<std::string>> shards;
  for (const std::string& tensor : weight_map->keys()) {
    const auto file = weight_map->get_string(tensor);
    if (!file) bad_input("{}: tensor {}: expected a file name, got null", path, printable(tensor));
    if (!stays_in_directory(*file)) {
      bad_input("{}: tensor {}: expected a file name in the same directory, got {}", path,
                printable(tensor), printable(*file));
    }
    shards[*file].push_back(tensor);
  }
  if (shards.empty()) bad_input("{}: field 'weight_map' is empty", path);
  return shards;
}

}  // namespace adder
