#include "engine/model_source.h"

#include <filesystem>

#include "core/error.h"
#include "engine/demo_model.h"
#include "io/hub.h"

namespace adder {

Checkpoint open_model(const std::string& model) {
  return model.empty() ? open_demo_model() : Checkpoint::open(resolve_model_path(model));
}

std::unique_ptr<Tokenizer> find_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.config().get_string("tokenizer").value_or("") == "bytes") {
    return make_byte_tokenizer();
  }
  return checkpoint.directory().empty() ? nullptr : load_tokenizer(checkpoint.directory());
}

std::unique_ptr<Tokenizer> load_tokenizer_of(const std::string& model) {
  if (model.empty()) return make_byte_tokenizer();
  const std::filesystem::path path = resolve_model_path(model);
  if (std::filesystem::is_directory(path)) {
    if (auto tokenizer = load_tokenizer(path.string())) return tokenizer;
    bad_input("{}: expected a tokenizer.json or tokenizer.model, got neither", model);
  }
  return load_tokenizer_file(path.string());
}

bool names_a_model(const std::string& argument) {
  std::error_code ignored;
  return std::filesystem::exists(argument, ignored) || is_repo_name(argument);
}

}  // namespace adder
