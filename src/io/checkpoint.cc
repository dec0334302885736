#include "io/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/gguf_config.h"
#include "io/mmap_file.h"
#include "io/printable.h"
#include "io/safetensors.h"
#include "io/shard_index.h"
#include "io/torch_zip.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".index.json";
// In a directory the first of these that exists is the checkpoint.
constexpr std::array<std::string_view, 5> kWeightFiles = {
    "model.safetensors", "model.safetensors.index.json", "consolidated.safetensors",
    "pytorch_model.bin", "pytorch_model.bin.index.json"};

// The bytes that tell what a file is.
std::string_view first_text(std::span<const std::byte> bytes) {
  constexpr size_t kShown = 64;
  return {reinterpret_cast<const char*>(bytes.data()), std::min(kShown, bytes.size())};
}

// Unreadable counts as absent: the message then lists what was looked for.
bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_gguf(std::span<const std::byte> bytes) {
  return first_text(bytes).starts_with(kGgufMagic);
}

// One file of weights, whatever its extension.
TensorFile open_weights(const std::string& path) {
  auto mapping = MappedFile::open(path);
  const auto bytes = mapping->bytes();
  const std::string_view magic = first_text(bytes);
  if (is_gguf(bytes)) bad_input("{}: expected safetensors or torch.save, got GGUF", path);
  if (magic.starts_with("version https://git-lfs")) {
    bad_input("{}: a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'", path);
  }
  // A pickle of before PyTorch 1.6 begins with PROTO (0x80); read_torch_zip says what to do.
  const bool torch = magic.starts_with("PK") || magic.starts_with("\x80");
  // A safetensors header of 0x..80 or "PK" bytes looks alike: there the JSON begins at byte 8.
  const bool safetensors = magic.size() > 8 && magic[8] == '{';
  TensorFile file =
      torch && !safetensors ? read_torch_zip(bytes, path) : read_safetensors(bytes, path);
  file.mapping = std::move(mapping);
  return file;
}

// Files with this extension, sorted.
std::vector<std::string> list_gguf(const fs::path& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".gguf") found.push_back(it->path().string());
  }
  if (error) fail(ErrorCode::kIo, "{}: cannot list: {}", directory.string(), error.message());
  std::sort(found.begin(), found.end());
  return found;
}

// Throws with the list of names when a directory has none of them.
std::string find_weights(const fs::path& directory) {
  for (const std::string_view name : kWeightFiles) {
    const fs::path candidate = directory / name;
    if (file_exists(candidate)) return candidate.string();
  }
  const std::vector<std::string> gguf = list_gguf(directory);
  if (gguf.size() == 1) return gguf[0];
  if (!gguf.empty()) {
    bad_input("{}: expected one GGUF file, got {}; name one of {}", directory.string(), gguf.size(),
              fmt::join(gguf, ", "));
  }
  bad_input("{}: no weights found; looked for {} and *.gguf", directory.string(),
            fmt::join(kWeightFiles, ", "));
}

std::string find_config(const fs::path& directory, const std::string& weights) {
  std::array<std::string_view, 2> names = {"config.json", "params.json"};
  // A Codestral directory may hold both forms of the model, each with its own config.
  if (fs::path(weights).filename().string().starts_with("consolidated")) {
    std::swap(names[0], names[1]);
  }
  for (const std::string_view name : names) {
    const fs::path candidate = directory / name;
    if (file_exists(candidate)) return candidate.string();
  }
  bad_input("{}: no config found beside it; looked for {} and {} in {}", weights, names[0],
            names[1], directory.empty() ? "." : directory.string());
}

// Names of files and tensors first. model_type alone says nothing: Codestral has "mamba" in
// a Mamba-2 config, and the old port shares it with Hugging Face.
Dialect detect_dialect(const Checkpoint::Tensors& tensors, const JsonValue& config) {
  const auto any_starts_with = [&](std::string_view prefix) {
    const auto it = tensors.lower_bound(prefix);
    return it != tensors.end() && it->first.starts_with(prefix);
  };
  if (any_starts_with("model.backbone.") || (config.has("dim") && config.has("n_layers"))) {
    return Dialect::kCodestral;
  }
  // Keys decide only where names cannot: the old port has the names of state-spaces, and a file
  // of Hugging Face carries d_model, n_layer and ssm_cfg as well as its own keys.
  if (config.has("hidden_size") || tensors.contains("backbone.embeddings.weight")) {
    return Dialect::kHuggingFace;
  }
  const bool old_port = config.has("d_inner") || config.has("d_state") || config.has("dt_rank");
  if (old_port) return Dialect::kOldPort;
  if (config.has("ssm_cfg") || tensors.contains("backbone.embedding.weight")) {
    return Dialect::kStateSpaces;
  }
  return config.has("model_type") ? Dialect::kHuggingFace : Dialect::kStateSpaces;
}

void check_config(const JsonValue& config) {
  if (!config.is_object()) bad_input("{}: expected a JSON object", config.name());
}

// The tensors of one shard, of which the index has named some.
TensorFile open_shard(const std::string& path, const std::vector<std::string>& expected,
                      const std::string& index) {
  TensorFile file = open_weights(path);
  std::set<std::string_view> present;
  // Tensors that the index leaves out are kept: the model decides whether it knows them.
  for (const StoredTensor& tensor : file.tensors) present.insert(tensor.name);
  for (const std::string& name : expected) {
    if (!present.contains(name)) {
      bad_input("{}: tensor {}, which {} places here, is missing", path, printable(name), index);
    }
  }
  return file;
}

}  // namespace

std::string_view dialect_name(Dialect dialect) {
  switch (dialect) {
    case Dialect::kStateSpaces:
      return "state-spaces";
    case Dialect::kHuggingFace:
      return "Hugging Face";
    case Dialect::kOldPort:
      return "old Hugging Face port";
    case Dialect::kCodestral:
      return "Codestral";
    case Dialect::kGguf:
      return "GGUF";
  }
  return "?";
}

Checkpoint Checkpoint::open(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) bad_input("{}: no such file or directory", path);
  if (error) fail(ErrorCode::kIo, "{}: {}", path, error.message());

  Checkpoint out;
  out.path_ = path;
  std::string weights = path;
  fs::path directory = fs::path(path).parent_path();
  if (fs::is_directory(status)) {
    directory = path;
    weights = find_weights(directory);
  }
  out.directory_ = directory.empty() ? "." : directory.string();

  if (!weights.ends_with(kIndexSuffix)) {
    if (auto mapping = MappedFile::open(weights); is_gguf(mapping->bytes())) {
      GgufFile file = read_gguf(mapping->bytes(), weights);
      file.tensors.mapping = std::move(mapping);
      out.add_gguf(std::move(file));
      return out;
    }
  }
  if (weights.ends_with(kIndexSuffix)) {
    for (const auto& [shard, names] : read_shard_index(weights)) {
      out.add(open_shard((directory / shard).string(), names, weights));
    }
  } else {
    out.add(open_weights(weights));
  }
  out.config_ = JsonValue::parse_file(find_config(directory, weights));
  check_config(out.config_);
  out.dialect_ = detect_dialect(out.tensors_, out.config_);
  return out;
}

Checkpoint Checkpoint::from_memory(std::span<const std::byte> safetensors, std::string_view config,
                                   std::string name) {
  TensorFile file = read_safetensors(safetensors, name);
  return from_tensors(std::move(file), config, std::move(name));
}

Checkpoint Checkpoint::from_tensors(TensorFile file, std::string_view config, std::string name) {
  Checkpoint out;
  out.config_ = JsonValue::parse(config, name + " (config)");
  check_config(out.config_);
  out.add(std::move(file));
  out.dialect_ = detect_dialect(out.tensors_, out.config_);
  out.path_ = std::move(name);
  return out;
}

Checkpoint Checkpoint::from_gguf(std::span<const std::byte> image, const std::string& name) {
  Checkpoint out;
  out.path_ = name;
  out.add_gguf(read_gguf(image, name));
  return out;
}

void Checkpoint::add_gguf(GgufFile file) {
  dialect_ = Dialect::kGguf;
  gguf_ = std::make_unique<const GgufMetadata>(std::move(file.metadata));
  config_ = JsonValue::parse(gguf_config_json(*gguf_), gguf_->file());
  const bool mamba2 = gguf_->get_string("general.architecture") == "mamba2";
  for (StoredTensor& tensor : file.tensors.tensors) shape_as_torch(tensor, mamba2);
  add(std::move(file.tensors));
}

// A tensor in two shards is ambiguous: neither wins.
void Checkpoint::add(TensorFile file) {
  for (StoredTensor& tensor : file.tensors) {
    const auto [it, is_new] = tensors_.try_emplace(tensor.name);
    if (!is_new) {
      bad_input("{}: tensor {} was found in {} already", tensor.file, printable(tensor.name),
                it->second.file);
    }
    it->second = std::move(tensor);
  }
  if (file.mapping) mappings_.push_back(std::move(file.mapping));
  for (auto& owner : file.owners) owners_.push_back(std::move(owner));
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

void Checkpoint::release(const StoredTensor& tensor) const {
  if (!tensor.is_contiguous()) return;
  const size_t bytes = row_bytes(tensor.dtype, tensor.size());
  for (const auto& mapping : mappings_) mapping->discard({tensor.data, bytes});
}

uint64_t Checkpoint::total_bytes() const {
  uint64_t total = 0;
  std::set<const std::byte*> counted;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.size() == 0 || !counted.insert(tensor.data).second) continue;
    total += row_bytes(tensor.dtype, tensor.size());
  }
  return total;
}

}  // namespace adder
