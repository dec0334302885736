#include "text/read_file.h"

#include <fstream>
#include <system_error>

#include "core/error.h"

namespace adder {

std::string read_file(const std::filesystem::path& path, uintmax_t limit) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(ErrorCode::kIo, "{}: {}", path.string(), error.message());
  ADDER_CHECK(size <= limit, "{}: expected at most {} bytes, got {}", path.string(), limit, size);
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size))) {
    fail(ErrorCode::kIo, "{}: cannot be read", path.string());
  }
  return bytes;
}

}  // namespace adder
