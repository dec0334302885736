// From what a user calls a model to its files.
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint.h"
#include "text/tokenizer.h"

namespace adder {

// model: an existing path, the name of a repository that was fetched with `adder pull`, or empty
// for the demo model inside the program. Throws Error naming what was looked for.
Checkpoint open_model(const std::string& model);

// The tokenizer that belongs to a checkpoint; null when there is none.
std::unique_ptr<Tokenizer> find_tokenizer(const Checkpoint& checkpoint);

// The tokenizer of a model, or of a tokenizer file, without reading weights.
// Throws Error(kBadInput) when there is none.
std::unique_ptr<Tokenizer> load_tokenizer_of(const std::string& model);

// True for an existing path and for anything spelled like a repository (owner/name): what the first
// of two optional arguments means when it is the only one.
bool names_a_model(const std::string& argument);

}  // namespace adder
