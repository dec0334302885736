// Whole files of bounded size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace adder {

// Larger than any tokenizer that is published (34 MB), and parsed in less than two seconds.
inline constexpr uintmax_t kLargestTokenizerFile = uintmax_t{64} << 20;

// Throws Error(kIo) when the file cannot be read, Error(kBadInput) when it is larger than `limit`.
std::string read_file(const std::filesystem::path& path, uintmax_t limit = kLargestTokenizerFile);

// tokenizer_config.json and the like: small files whose JSON becomes a tree. Throws
// Error(kBadInput) also for more than 64 levels, which would cost a tree hundreds of times the
// file's size.
inline constexpr uintmax_t kLargestConfigFile = uintmax_t{8} << 20;
std::string read_json_config(const std::filesystem::path& path);

}  // namespace adder
