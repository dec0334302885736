// What `adder tune` found out, kept for each processor, backend and model shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/config.h"

namespace adder {

struct Tuning {
  int64_t block = 0;  // tokens of a prompt that are processed at once
};

struct FoundTuning {
  std::optional<Tuning> tuning;
  std::string problem;  // why the file could not be used, for the user; empty: nothing is wrong
};

// $XDG_CACHE_HOME/adder/tune.json or ~/.cache/adder/tune.json; empty without a home.
std::string tuning_path();

// description: of the backend, which names its instruction set and threads.
std::string tuning_key(const ModelConfig& config, const std::string& description);

// A missing file or key is no problem; a broken file is one, and no error.
FoundTuning find_tuning(const std::string& path, const std::string& key);

// Replaces the entry of this key and keeps the others; a broken file is replaced. The file appears
// whole or not at all. Throws Error(kIo) when it cannot be written.
void store_tuning(const std::string& path, const std::string& key, const Tuning& tuning);

}  // namespace adder
