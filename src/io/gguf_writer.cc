#include "io/gguf_writer.h"

#include <bit>

#include "core/error.h"
#include "io/byte_reader.h"

namespace adder {
namespace {

constexpr uint32_t kVersion = 3;

template <typename T>
void put(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

}  // namespace

void GgufWriter::add_key(std::string_view key) {
  if (has_begun()) fail(ErrorCode::kInternal, "GGUF writer: key '{}' comes too late", key);
  if (!keys_.emplace(key).second) fail(ErrorCode::kInternal, "GGUF writer: key '{}' twice", key);
  put_string(metadata_, key);
}

void GgufWriter::add_type(GgufType type) {
  put(metadata_, static_cast<uint32_t>(type));
}

void GgufWriter::add_u32(std::string_view key, uint32_t value) {
  add_key(key);
  add_type(GgufType::kU32);
  put(metadata_, value);
}

void GgufWriter::add_f32(std::string_view key, float value) {
  add_key(key);
  add_type(GgufType::kF32);
  put(metadata_, value);
}

void GgufWriter::add_bool(std::string_view key, bool value) {
  add_key(key);
  add_type(GgufType::kBool);
  put<uint8_t>(metadata_, value ? 1 : 0);
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  add_key(key);
  add_type(GgufType::kString);
  put_string(metadata_, value);
}

void GgufWriter::add_strings(std::string_view key, std::span<const std::string_view> values) {
  add_key(key);
  add_type(GgufType::kArray);
  add_type(GgufType::kString);
  put<uint64_t>(metadata_, values.size());
  for (const std::string_view value : values) put_string(metadata_, value);
}

void GgufWriter::add_floats(std::string_view key, std::span<const float> values) {
  add(key, {GgufType::kF32, true, values.size(), std::as_bytes(values)});
}

void GgufWriter::add_ints(std::string_view key, std::span<const int32_t> values) {
  add(key, {GgufType::kI32, true, values.size(), std::as_bytes(values)});
}

void GgufWriter::add(std::string_view key, const GgufValue& value) {
  add_key(key);
  if (value.is_array) {
    add_type(GgufType::kArray);
    add_type(value.type);
    put(metadata_, value.count);
  } else {
    add_type(value.type);
    if (value.type == GgufType::kString) put<uint64_t>(metadata_, value.data.size());
  }
  metadata_ += as_text(value.data);
}

std::string GgufWriter::header() const {
  std::string out(kGgufMagic);
  put(out, kVersion);
  put<uint64_t>(out, declared().size());
  put<uint64_t>(out, keys_.size());
  out += metadata_;
  for (const Declared& tensor : declared()) {
    const auto type = ggml_type(tensor.dtype);
    if (!type) {
      fail(ErrorCode::kUnsupported, "tensor '{}': GGUF has no type {}", tensor.name,
           dtype_name(tensor.dtype));
    }
    put_string(out, tensor.name);
    put<uint32_t>(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t axis = tensor.shape.size(); axis-- > 0;) {
      put<uint64_t>(out, static_cast<uint64_t>(tensor.shape[axis]));
    }
    put(out, *type);
    put(out, tensor.offset);
  }
  out.append((kGgufAlignment - out.size() % kGgufAlignment) % kGgufAlignment, '\0');
  return out;
}

}  // namespace adder
