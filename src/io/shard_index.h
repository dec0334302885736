// The index of a checkpoint in several files: {"weight_map": {"tensor name": "file name"}}.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace adder {

// File name -> names of the tensors in it. Throws Error(kBadInput) for an index without weight_map
// and for file names that could leave the index's directory.
std::map<std::string, std::vector<std::string>> read_shard_index(const std::string& path);

}  // namespace adder
