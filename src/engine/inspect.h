// What a checkpoint is, without running it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint.h"
#include "model/config.h"

namespace adder {

struct DtypeSum {
  int64_t tensors = 0, parameters = 0, bytes = 0;
};

struct ModelReport {
  ModelConfig config;
  std::string_view dialect;
  std::map<std::string_view, DtypeSum> dtypes;
  int64_t parameters = 0, bytes = 0;  // as stored; tied tensors that share memory count once
  std::vector<StoredTensor> tensors;  // by name; `data` is no longer valid
  std::string tokenizer;              // its kind; empty when there is none
  int64_t tokenizer_ids = 0;
  std::vector<std::string> warnings;
};

// model: as for Engine::load. Checks all that loading checks. Throws Error like it.
ModelReport inspect_model(const std::string& model);

}  // namespace adder
