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

std::string read_json_config(const std::filesystem::path& path) {
  constexpr int kDeepest = 64;
  std::string text = read_file(path, kLargestConfigFile);
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;  // whatever is escaped does not end the string
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ADDER_CHECK(++depth <= kDeepest,
                  "{}: expected at most {} levels of JSON, got more at byte {}", path.string(),
                  kDeepest, i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text;
}

}  // namespace adder
