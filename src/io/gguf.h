// GGUF, the container of ggml and llama.cpp, versions 2 and 3, little endian:
//   "GGUF", u32 version, u64 tensors, u64 keys
//   keys: string name, u32 type, value; an array is u32 element type, u64 count, elements;
//     a string is u64 length, bytes
//   tensor infos: string name, u32 axes, u64 ne[axes] (fastest axis first), u32 type, u64 offset
//   padding to general.alignment (32), then the data; every offset is a multiple of the alignment
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_file.h"

namespace adder {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr size_t kGgufAlignment = 32;  // unless the key says otherwise

// The numbers are the format's.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::string_view gguf_type_name(GgufType type);

// ggml's number of a tensor type; nothing for those that ggml lacks (U8, BOOL).
std::optional<uint32_t> ggml_type(DType dtype);

// One value as it lies in the file.
struct GgufValue {
  GgufType type = GgufType::kU8;  // of the value, or of an array's elements
  bool is_array = false;
  uint64_t count = 1;               // elements
  std::span<const std::byte> data;  // the elements; of one string its text without the length
};

// The metadata of a file: views into its bytes, which must outlive the object. Getters return
// nothing when the key is absent and throw Error(kBadInput) naming file, key, the type that was
// expected and the one that was found when the value has another.
class GgufMetadata {
 public:
  const std::map<std::string_view, GgufValue>& values() const { return values_; }
  bool has(std::string_view key) const { return values_.contains(key); }
  const std::string& file() const { return file_; }

  std::optional<int64_t> get_int(std::string_view key) const;    // any whole type
  std::optional<double> get_number(std::string_view key) const;  // F32, F64 or a whole type
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string_view> get_string(std::string_view key) const;
  // Arrays, empty when the key is absent. Text is not checked to be UTF-8.
  std::vector<std::string_view> get_strings(std::string_view key) const;
  std::vector<float> get_floats(std::string_view key) const;  // F32 or a whole type
  std::vector<int32_t> get_ints(std::string_view key) const;  // any whole type

 private:
  friend class GgufReader;
  const GgufValue* find(std::string_view key) const;
  const GgufValue* find(std::string_view key, bool is_array, std::string_view expected) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view expected) const;
  int64_t whole(std::string_view key, const GgufValue& value, uint64_t index,
                std::string_view expected) const;

  std::string file_;
  std::map<std::string_view, GgufValue> values_;
};

struct GgufFile {
  GgufMetadata metadata;
  TensorFile tensors;  // shapes in torch's order: ne reversed
};

// Lists an image that outlives the result; `name` is the file name in messages. Time and memory are
// bounded by the size of the image. Throws Error(kBadInput) on any violation of the format,
// Error(kUnsupported) for versions 1 and from 4 on, big-endian files, one part of a split model,
// and tensor types that core/dtype.h lacks.
GgufFile read_gguf(std::span<const std::byte> image, const std::string& name);

}  // namespace adder
