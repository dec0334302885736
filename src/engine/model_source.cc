#include "engine/model_source.h"

#include <filesystem>

#include "core/error.h"
#include "engine/demo_model.h"
#include "engine/gguf_tokenizer.h"
#include "io/hub.h"

namespace adder {
namespace {

bool holds_gguf(const std::filesystem::path& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".gguf") return true;
  }
  return false;
}

}  // namespace

Checkpoint open_model(const std::string& model) {
  return model.empty() ? open_demo_model() : Checkpoint::open(resolve_model_path(model));
}

std::unique_ptr<Tokenizer> find_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.config().get_string("tokenizer").value_or("") == "bytes") {
    return make_byte_tokenizer();
  }
  if (checkpoint.gguf() != nullptr) return load_gguf_tokenizer(*checkpoint.gguf());
  return checkpoint.directory().empty() ? nullptr : load_tokenizer(checkpoint.directory());
}

std::unique_ptr<Tokenizer> load_tokenizer_of(const std::string& model) {
  if (model.empty()) return make_byte_tokenizer();
  const std::filesystem::path path = resolve_model_path(model);
  if (std::filesystem::is_directory(path)) {
    if (auto tokenizer = load_tokenizer(path.string())) return tokenizer;
  } else if (path.extension() != ".gguf") {
    return load_tokenizer_file(path.string());
  }
  if (path.extension() == ".gguf" || holds_gguf(path)) {
    if (auto tokenizer = find_tokenizer(Checkpoint::open(path.string()))) return tokenizer;
  }
  bad_input("{}: expected a tokenizer.json, tokenizer.model or a GGUF file with one, got none",
            model);
}

bool names_a_model(const std::string& argument) {
  std::error_code ignored;
  return std::filesystem::exists(argument, ignored) || is_repo_name(argument);
}

}  // namespace adder
