// Whole files of bounded size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace adder {

// Larger than any tokenizer that is published (34 MB), and parsed in less than two seconds.
inline constexpr uintmax_t kLargestTokenizerFile = uintmax_t{64} << 20;

// Throws Error(kIo) when the file cannot be read, Error(kBadInput) when it is larger than `limit`.
std::string read_file(const std::filesystem::path& path, uintmax_t limit = kLargestTokenizerFile);

}  // namespace adder
