#include "io/hub_listing.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/error.h"
#include "io/json_lenient.h"
#include "io/printable.h"

namespace adder {
namespace {

constexpr int64_t kMaxFileSize = int64_t{1} << 50;  // 1 PiB: more is a lie, and sums stay in range

// What the loaders read beside the weights.
constexpr std::array kSmallFiles = {
    "config.json",           "generation_config.json",  "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"};

std::optional<int64_t> checked_size(std::optional<int64_t> size, const std::string& where,
                                    const std::string& name) {
  if (size && (*size < 0 || *size > kMaxFileSize)) {
    bad_input("{}: {}: expected a size of 0..{} bytes, got {}", where, name, kMaxFileSize, *size);
  }
  return size;
}

bool is_tokenizer(std::string_view name) {
  return name == "tokenizer.json" || name == "tokenizer.model" ||
         name.starts_with("tokenizer.model.");
}

// Told by the suffix alone: --include may name any file.
bool is_weights(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".bin") || name.ends_with(".pt") ||
         name.ends_with(".gguf");
}

}  // namespace

bool is_inside_path(std::string_view name) {
  if (name.empty() || name.size() > 1024 || name.find('\\') != std::string_view::npos) return false;
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    begin = end + 1;
  }
  return true;
}

bool is_reserved(std::string_view name) {
  return name.find(".adder-pull") != std::string_view::npos || name.ends_with(".part") ||
         name.ends_with(".part.json");
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0;
         });
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

RepoListing parse_listing(std::string_view text, const std::string& where) {
  const JsonValue document = JsonValue::parse(text, where);
  RepoListing listing;
  const std::string commit = document.get_string("sha").value_or("");
  if (is_hex(commit, 40)) listing.commit = commit;
  const auto siblings = document.get_array("siblings");
  for (const JsonValue& sibling : siblings.value_or(std::vector<JsonValue>{})) {
    const std::string name = sibling.get_string("rfilename").value_or("");
    if (!is_inside_path(name)) {
      bad_input("{}: refused the file name {}: expected a relative path without '..'", where,
                printable(name));
    }
    ListedFile& file = listing.files[name];
    file.size = checked_size(sibling.get_int("size"), where, name);
    // Git's blob id of a large file is that of its pointer; the SHA-256 below replaces it.
    file.version = sibling.get_string("blobId").value_or("");
    const auto lfs = sibling.get_object("lfs");
    if (!lfs) continue;
    if (const auto size = checked_size(lfs->get_int("size"), where, name)) {
      if (file.size && *file.size != *size) {
        bad_input("{}: {}: listed with two sizes, {} and {}", where, name, *file.size, *size);
      }
      file.size = size;
    }
    if (const auto sha256 = lfs->get_string("sha256")) {
      if (!is_hex(*sha256, 64)) {
        bad_input("{}: {}: expected a SHA-256 of 64 hex digits, got {}", where, name,
                  printable(*sha256));
      }
      file.sha256 = file.version = lower_case(*sha256);
    }
  }
  if (listing.files.empty()) {
    bad_input("{}: field 'siblings': expected a list of files, got none", where);
  }
  return listing;
}

Selection select_files(const RepoListing& listing, const std::vector<std::string>& include,
                       const std::string& where) {
  const auto has = [&](std::string_view name) {
    return listing.files.count(std::string(name)) != 0;
  };
  std::vector<std::string> extra, gguf;
  for (const std::string& pattern : include) {
    bool matched = false;
    for (const auto& [name, file] : listing.files) {
      if (fnmatch(pattern.c_str(), name.c_str(), 0) != 0 || is_reserved(name)) continue;
      extra.push_back(name);
      matched = true;
    }
    if (!matched) bad_input("{}: no file matches '{}'", where, pattern);
  }

  // Small files first: what is wrong with them shows before gigabytes have come in.
  Selection selection;
  for (const char* name : kSmallFiles) {
    if (has(name)) selection.files.emplace_back(name);
  }
  for (const auto& [name, file] : listing.files) {
    if (name.starts_with("tokenizer.model") && is_tokenizer(name)) selection.files.push_back(name);
    if (name.ends_with(".gguf")) gguf.push_back(name);
  }
  selection.has_tokenizer = has("tokenizer.json") || has("tokenizer.model") ||
                            std::any_of(selection.files.begin(), selection.files.end(),
                                        [](const std::string& name) { return is_tokenizer(name); });

  // One form only: the same weights as safetensors and as a pickle would double the download.
  std::string weights;
  bool needs_config = true;
  if (std::any_of(extra.begin(), extra.end(), is_weights)) {
    needs_config = false;  // the user has chosen
  } else if (has("model.safetensors")) {
    weights = "model.safetensors";
  } else if (has("model.safetensors.index.json")) {
    weights = selection.index = "model.safetensors.index.json";
  } else if (has("consolidated.safetensors")) {
    weights = "consolidated.safetensors";
    if (has("params.json")) selection.files.emplace_back("params.json");
  } else if (has("pytorch_model.bin")) {
    weights = "pytorch_model.bin";
  } else if (has("pytorch_model.bin.index.json")) {
    weights = selection.index = "pytorch_model.bin.index.json";
  } else if (gguf.size() == 1 && !is_reserved(gguf[0])) {
    weights = gguf[0];
    needs_config = false;
  } else if (gguf.size() > 1) {
    bad_input("{}: holds {} GGUF files; choose one with --include, e.g. --include {}", where,
              gguf.size(), printable(gguf[0]));
  } else {
    bad_input(
        "{}: expected model.safetensors, consolidated.safetensors, pytorch_model.bin, an index of "
        "shards or a GGUF file, got none of them",
        where);
  }
  if (needs_config && !has("config.json") && !has("params.json")) {
    bad_input("{}: expected config.json or params.json, got neither", where);
  }
  if (!weights.empty()) selection.files.push_back(weights);
  for (const std::string& name : extra) {
    if (std::find(selection.files.begin(), selection.files.end(), name) == selection.files.end()) {
      selection.files.push_back(name);
    }
  }
  return selection;
}

bool wants_neox_tokenizer(std::string_view config) {
  try {
    const JsonValue json = JsonValue::parse(config, "config.json");
    // 50277 entries, padded to a multiple of 8, 16 or at most 128.
    const int64_t vocabulary = json.get_int("vocab_size").value_or(0);
    return json.has("d_model") && !json.has("model_type") && vocabulary >= 50277 &&
           vocabulary <= 50304;
  } catch (const Error&) {
    return false;  // whoever loads the model tells what is wrong with its config
  }
}

}  // namespace adder
