#include "io/torch_zip.h"

#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/byte_reader.h"
#include "io/mmap_file.h"
#include "io/printable.h"
#include "io/unpickler.h"
#include "io/zip_archive.h"

namespace adder {
namespace {

using Kind = PickledData::Kind;
using Ref = PickledData::Ref;
using Value = PickledData::Value;

// Keys under which training scripts put the state dict, beside epoch, optimizer and the like.
constexpr std::array<std::string_view, 3> kNested = {"state_dict", "model_state_dict", "model"};
constexpr std::string_view kPickleEntry = "data.pkl";

// "<root>/" of the one entry "<root>/data.pkl".
std::string find_root(const ZipArchive& zip, const std::string& name) {
  std::string root;
  bool found = false;
  for (const auto& [entry, unused] : zip.entries()) {
    const bool match = entry == kPickleEntry || entry.ends_with("/data.pkl");
    if (!match) continue;
    if (found) bad_input("{}: expected one data.pkl, got two", name);
    found = true;
    root = entry.substr(0, entry.size() - kPickleEntry.size());
  }
  if (!found) bad_input("{}: a zip without data.pkl, so not written by torch.save", name);
  return root;
}

// Whether a tensor can be reached from a value. `seen` is shared between calls, so that all of them
// together visit each value once.
bool holds_tensor(const PickledData& data, Ref from, std::vector<bool>& seen) {
  std::vector<Ref> pending = {from};
  while (!pending.empty()) {
    const Ref ref = pending.back();
    pending.pop_back();
    if (seen[ref]) continue;
    seen[ref] = true;
    const Value& value = data.at(ref);
    if (value.kind == Kind::kTensor || value.kind == Kind::kStorage) return true;
    pending.insert(pending.end(), value.items.begin(), value.items.end());
  }
  return false;
}

// The dict whose values are the tensors: the outermost, unless it has none and one of kNested does.
const Value& find_state_dict(const PickledData& data, const std::string& name) {
  const Value& root = data.at(data.root());
  if (root.kind != Kind::kDict) bad_input("{}: expected a dict of tensors", name);
  const Value* nested = nullptr;
  std::string_view nested_key;
  for (size_t i = 0; i < root.items.size(); i += 2) {
    const Value& key = data.at(root.items[i]);
    const Value& value = data.at(root.items[i + 1]);
    if (value.kind == Kind::kTensor) return root;
    if (key.kind != Kind::kString || value.kind != Kind::kDict) continue;
    for (const std::string_view candidate : kNested) {
      if (key.text != candidate) continue;
      if (nested != nullptr) {
        bad_input("{}: expected one state dict, got '{}' and '{}'", name, nested_key, candidate);
      }
      nested = &value;
      nested_key = candidate;
    }
  }
  return nested != nullptr ? *nested : root;
}

// Joins what the pickle says about the tensors with the storages in the zip.
class TensorBuilder {
 public:
  TensorBuilder(const ZipArchive& zip, const PickledData& data, std::string root, std::string name)
      : zip_(zip), data_(data), root_(std::move(root)), name_(std::move(name)) {}

  TensorFile build(const Value& state_dict);

 private:
  std::span<const std::byte> storage(const PickledTensor& tensor, const std::string& field) const;

  const ZipArchive& zip_;
  const PickledData& data_;
  const std::string root_, name_;
};

// The bytes of a tensor's storage. The pickle has checked the tensor against the size it claims for
// the storage; here the claim itself is checked.
std::span<const std::byte> TensorBuilder::storage(const PickledTensor& tensor,
                                                  const std::string& field) const {
  const std::string entry_name = root_ + "data/" + std::string(tensor.storage_key);
  const ZipArchive::Entry* entry = zip_.find(entry_name);
  if (entry == nullptr) bad_input("{}: its storage {} is missing", field, printable(entry_name));
  const auto elements = static_cast<uint64_t>(tensor.storage_size);
  const uint64_t item = dtype_size(tensor.dtype);
  if (entry->data.size() % item != 0 || entry->data.size() / item != elements) {
    bad_input("{}: expected {} elements of {} in its storage {}, got {} bytes", field, elements,
              dtype_name(tensor.dtype), printable(entry_name), entry->data.size());
  }
  return entry->data;
}

TensorFile TensorBuilder::build(const Value& state_dict) {
  TensorFile file;
  std::vector<std::pair<const PickledTensor*, std::span<const std::byte>>> sources;
  std::vector<bool> seen(data_.size());
  std::set<std::string_view> names;
  for (size_t i = 0; i < state_dict.items.size(); i += 2) {
    const Value& key = data_.at(state_dict.items[i]);
    const Ref value_ref = state_dict.items[i + 1];
    const Value& value = data_.at(value_ref);
    if (value.kind != Kind::kTensor) {
      if (!holds_tensor(data_, value_ref, seen)) continue;
      bad_input("{}: entry {}: expected a tensor, got tensors inside another value", name_,
                printable(key.text));
    }
    if (key.kind != Kind::kString) bad_input("{}: a tensor whose key is no string", name_);
    const std::string field = name_ + ": tensor " + printable(key.text);
    if (!is_sane_name(key.text)) bad_input("{}: a name that no format writes", field);
    if (!names.insert(key.text).second) bad_input("{}: appears twice", field);
    const PickledTensor& source = data_.tensors()[static_cast<size_t>(value.integer)];
    sources.emplace_back(&source, storage(source, field));
    file.tensors.push_back({.name = std::string(key.text),
                            .file = name_,
                            .dtype = source.dtype,
                            .shape = source.shape,
                            .stride = source.stride});
  }
  if (file.tensors.empty()) bad_input("{}: holds no tensors", name_);

  // Storages that are unaligned in the file are copied once each, after all checks.
  std::map<const std::byte*, const std::byte*> placed;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& [source, bytes] = sources[i];
    auto [it, is_new] = placed.try_emplace(bytes.data(), nullptr);
    constexpr size_t kWidest = 8;  // one copy serves views of any dtype
    if (is_new) it->second = aligned_data(bytes, kWidest, file.owners);
    const size_t offset = static_cast<size_t>(source->offset) * dtype_size(source->dtype);
    file.tensors[i].data = it->second + offset;
  }
  return file;
}

}  // namespace

TensorFile read_torch_zip(std::span<const std::byte> image, const std::string& name) {
  const std::string_view text = as_text(image);
  if (!text.starts_with("PK")) {
    fail(
        ErrorCode::kUnsupported,
        "{}: expected the zip that torch.save writes since PyTorch 1.6; convert an older file with "
        "torch.save(torch.load('old.bin', map_location='cpu'), 'new.bin')",
        name);
  }
  const ZipArchive zip = ZipArchive::parse(image, name);
  const std::string root = find_root(zip, name);
  if (const auto* order = zip.find(root + "byteorder"); order && as_text(order->data) != "little") {
    fail(ErrorCode::kUnsupported, "{}: expected byteorder 'little', got {}", name,
         printable(as_text(order->data)));
  }
  const ZipArchive::Entry& pickle = *zip.find(root + std::string(kPickleEntry));
  // Weights are not summed: that would read every byte of them. The description is small.
  if (crc32(pickle.data) != pickle.crc) {
    bad_input("{}: data.pkl: expected CRC-32 {:08x}, got {:08x} (damaged)", name, pickle.crc,
              crc32(pickle.data));
  }
  const PickledData data = unpickle(pickle.data, name + " (data.pkl)");
  return TensorBuilder(zip, data, root, name).build(find_state_dict(data, name));
}

TensorFile open_torch_zip(const std::string& path) {
  auto mapping = MappedFile::open(path);
  TensorFile file = read_torch_zip(mapping->bytes(), path);
  file.mapping = std::move(mapping);
  return file;
}

}  // namespace adder
