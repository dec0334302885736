#include "engine/inspect.h"

#include <set>

#include "backends/registry.h"
#include "core/error.h"
#include "engine/model_source.h"
#include "model/weights.h"

namespace adder {

ModelReport inspect_model(const std::string& model) {
  const Checkpoint checkpoint = open_model(model);
  ModelReport r;
  r.config = derive_config(checkpoint);
  const auto backend = make_backend("ref");
  Weights::load(checkpoint, r.config, *backend);
  r.dialect = dialect_name(checkpoint.dialect());
  std::set<const std::byte*> seen;
  for (const auto& [name, t] : checkpoint.tensors()) {
    r.tensors.push_back(t);
    r.tensors.back().data = nullptr;
    if (!seen.insert(t.data).second) continue;
    const auto bytes = static_cast<int64_t>(row_bytes(t.dtype, t.size()));
    DtypeSum& sum = r.dtypes[dtype_name(t.dtype)];
    ++sum.tensors;
    sum.parameters += t.size();
    sum.bytes += bytes;
    r.parameters += t.size();
    r.bytes += bytes;
  }
  r.warnings = r.config.warnings;
  if (const auto tokenizer = find_tokenizer(checkpoint)) {
    r.tokenizer = tokenizer->kind();
    r.tokenizer_ids = tokenizer->size();
  } else {
    r.warnings.emplace_back("no tokenizer with the weights: only ids (--tokens) can be given");
  }
  if (r.tokenizer_ids > r.config.vocab_rows) {
    r.warnings.push_back(fmt::format("the tokenizer has {} ids, more than the embedding's {} rows",
                                     r.tokenizer_ids, r.config.vocab_rows));
  }
  return r;
}

}  // namespace adder
