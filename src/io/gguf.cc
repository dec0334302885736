#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "core/error.h"
#include "io/byte_reader.h"
#include "io/printable.h"

namespace adder {
namespace {

// Real files have fewer than 100 keys and a few thousand tensors; these bound the nodes of maps.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr uint32_t kMaxAxes = 4;

struct TypeRow {
  GgufType type;
  std::string_view name;
  size_t bytes;  // of one element; 0 where they differ
};
constexpr std::array<TypeRow, 13> kTypes = {{{GgufType::kU8, "u8", 1},
                                             {GgufType::kI8, "i8", 1},
                                             {GgufType::kU16, "u16", 2},
                                             {GgufType::kI16, "i16", 2},
                                             {GgufType::kU32, "u32", 4},
                                             {GgufType::kI32, "i32", 4},
                                             {GgufType::kF32, "f32", 4},
                                             {GgufType::kBool, "bool", 1},
                                             {GgufType::kString, "string", 0},
                                             {GgufType::kArray, "array", 0},
                                             {GgufType::kU64, "u64", 8},
                                             {GgufType::kI64, "i64", 8},
                                             {GgufType::kF64, "f64", 8}}};

size_t element_bytes(GgufType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

// Rows of ggml's enumeration that Adder reads.
constexpr std::pair<uint32_t, DType> kTensorTypes[] = {
    {0, DType::kF32},   {1, DType::kF16},   {2, DType::kQ4_0},  {8, DType::kQ8_0},
    {12, DType::kQ4_K}, {13, DType::kQ5_K}, {14, DType::kQ6_K}, {24, DType::kI8},
    {25, DType::kI16},  {26, DType::kI32},  {27, DType::kI64},  {28, DType::kF64},
    {30, DType::kBF16}};
// And of some that it does not, to name them.
constexpr std::pair<uint32_t, std::string_view> kOtherTypes[] = {
    {3, "Q4_1"},   {6, "Q5_0"},    {7, "Q5_1"},     {9, "Q8_1"},    {10, "Q2_K"},
    {11, "Q3_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},
    {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {39, "MXFP4"}};

DType tensor_type(uint32_t number, const std::string& field) {
  for (const auto& [known, dtype] : kTensorTypes) {
    if (known == number) return dtype;
  }
  std::string name = fmt::format("number {}", number);
  for (const auto& [other, spelled] : kOtherTypes) {
    if (other == number) name = spelled;
  }
  fail(ErrorCode::kUnsupported,
       "{}: expected type F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K or Q6_K, got {}", field, name);
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

std::optional<uint32_t> ggml_type(DType dtype) {
  for (const auto& [number, known] : kTensorTypes) {
    if (known == dtype) return number;
  }
  return std::nullopt;
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> image, const std::string& name)
      : image_(image), name_(name), in_(image, name) {}

  GgufFile read() {
    read_head();
    file_.metadata.file_ = name_;
    for (uint64_t i = 0; i < keys_; ++i) read_key();
    check_split();
    read_alignment();
    for (uint64_t i = 0; i < tensors_; ++i) read_tensor();
    place_tensors();
    return std::move(file_);
  }

 private:
  struct Range {
    uint64_t begin, bytes;
  };

  void read_head() {
    if (image_.size() < 4 || in_.text(4) != kGgufMagic) bad_input("{}: not a GGUF file", name_);
    const uint32_t version = in_.u32();
    if (version == 0x02000000 || version == 0x03000000) {
      fail(ErrorCode::kUnsupported, "{}: expected a little-endian GGUF file, got a big-endian one",
           name_);
    }
    if (version < 2 || version > 3) {
      fail(ErrorCode::kUnsupported, "{}: expected GGUF version 2 or 3, got {}", name_, version);
    }
    tensors_ = in_.u64();
    keys_ = in_.u64();
    if (keys_ > kMaxKeys) {
      bad_input("{}: expected at most {} metadata keys, got {}", name_, kMaxKeys, keys_);
    }
    if (tensors_ > kMaxTensors) {
      bad_input("{}: expected at most {} tensors, got {}", name_, kMaxTensors, tensors_);
    }
  }

  GgufType read_type(const std::string& field) {
    const uint32_t type = in_.u32();
    if (type >= kTypes.size()) bad_input("{}: expected a type from 0 to 12, got {}", field, type);
    return static_cast<GgufType>(type);
  }

  void read_key() {
    const uint64_t length = in_.u64();
    if (length == 0 || length > kMaxKeyBytes) {
      bad_input("{}: expected a key of 1 to {} bytes, got {} (byte {})", name_, kMaxKeyBytes,
                length, in_.position());
    }
    const std::string_view key = in_.text(length);
    const std::string field = fmt::format("{}: key {}", name_, printable(key));
    GgufValue value;
    value.type = read_type(field);
    if (value.type == GgufType::kArray) {
      value.is_array = true;
      value.type = read_type(field);
      value.count = in_.u64();
      if (value.type == GgufType::kArray) {
        fail(ErrorCode::kUnsupported, "{}: expected an array of plain values, got nested arrays",
             field);
      }
      read_elements(value, field);
    } else if (value.type == GgufType::kString) {
      value.data = in_.take(in_.u64());
    } else {
      value.data = in_.take(element_bytes(value.type));
    }
    if (value.type == GgufType::kBool) check_bools(value, field);
    if (!file_.metadata.values_.emplace(key, value).second) {
      bad_input("{}: the key occurs twice", field);
    }
  }

  void read_elements(GgufValue& value, const std::string& field) {
    const size_t bytes = element_bytes(value.type);
    // A string takes 8 bytes at least: a count that cannot be true ends here, not in a long loop.
    const uint64_t least = bytes == 0 ? sizeof(uint64_t) : bytes;
    if (value.count > in_.remaining() / least) {
      bad_input("{}: expected at most {} elements in the bytes that are left, got {}", field,
                in_.remaining() / least, value.count);
    }
    if (bytes != 0) {
      value.data = in_.take(value.count * bytes);
      return;
    }
    const size_t begin = in_.position();
    for (uint64_t i = 0; i < value.count; ++i) in_.skip(in_.u64());
    value.data = image_.subspan(begin, in_.position() - begin);
  }

  static void check_bools(const GgufValue& value, const std::string& field) {
    for (const std::byte b : value.data) {
      if (std::to_integer<int>(b) > 1) {
        bad_input("{}: expected 0 or 1 for a bool, got {}", field, std::to_integer<int>(b));
      }
    }
  }

  void check_split() const {
    const int64_t parts = file_.metadata.get_int("split.count").value_or(1);
    if (parts > 1) {
      fail(ErrorCode::kUnsupported,
           "{}: key 'split.count': expected a whole model, got one of {} parts; join them with "
           "llama-gguf-split --merge",
           name_, parts);
    }
  }

  void read_alignment() {
    const int64_t alignment =
        file_.metadata.get_int(kGgufAlignmentKey).value_or(static_cast<int64_t>(kGgufAlignment));
    if (alignment < 1 || alignment > (1 << 30) || (alignment & (alignment - 1)) != 0) {
      bad_input("{}: key '{}': expected a power of two up to 2^30, got {}", name_,
                kGgufAlignmentKey, alignment);
    }
    alignment_ = static_cast<uint64_t>(alignment);
  }

  void read_tensor() {
    StoredTensor tensor;
    tensor.name = in_.text(in_.u64());
    const std::string field = fmt::format("{}: tensor {}", name_, printable(tensor.name));
    if (!is_sane_name(tensor.name)) bad_input("{}: a name that no format writes", field);
    if (!names_.insert(tensor.name).second) bad_input("{}: the name occurs twice", field);
    tensor.file = name_;
    const uint32_t axes = in_.u32();
    if (axes < 1 || axes > kMaxAxes) {
      bad_input("{}: expected 1 to {} axes, got {}", field, kMaxAxes, axes);
    }
    int64_t elements = 1;
    for (uint32_t axis = 0; axis < axes; ++axis) {
      const uint64_t ne = in_.u64();
      if (ne == 0 || ne > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
          __builtin_mul_overflow(elements, static_cast<int64_t>(ne), &elements)) {
        bad_input("{}: axis {}: expected a size above 0 and a product in 63 bits, got {}", field,
                  axis, ne);
      }
      tensor.shape.push_back(static_cast<int64_t>(ne));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    tensor.stride = contiguous_strides(tensor.shape);
    tensor.dtype = tensor_type(in_.u32(), field);
    const BlockShape block = block_shape(tensor.dtype);
    if (tensor.shape.back() % block.elements != 0) {
      bad_input("{}: expected rows of whole blocks of {} elements in {}, got {}", field,
                block.elements, dtype_name(tensor.dtype), tensor.shape.back());
    }
    const uint64_t offset = in_.u64();
    if (offset % alignment_ != 0) {
      bad_input("{}: offset: expected a multiple of {}, got {}", field, alignment_, offset);
    }
    const auto blocks = static_cast<uint64_t>(elements / block.elements);
    if (blocks > image_.size() / block.bytes) {  // before the product, which might overflow
      bad_input("{}: expected at most {} bytes of data, got {} blocks of {}", field, image_.size(),
                blocks, block.bytes);
    }
    ranges_.push_back({offset, blocks * block.bytes});
    file_.tensors.tensors.push_back(std::move(tensor));
  }

  // Each tensor has bytes of its own: together they are never more than the file.
  void place_tensors() {
    if (ranges_.empty()) return;
    const uint64_t begin = (in_.position() + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t data_bytes = begin < image_.size() ? image_.size() - begin : 0;
    std::vector<size_t> order(ranges_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return ranges_[a].begin < ranges_[b].begin; });
    uint64_t end = 0;
    for (const size_t i : order) {
      const Range& range = ranges_[i];
      const std::string& tensor = file_.tensors.tensors[i].name;
      if (range.begin > data_bytes || range.bytes > data_bytes - range.begin) {
        bad_input("{}: tensor '{}': expected its {} bytes at offset {} within {} bytes of data",
                  name_, tensor, range.bytes, range.begin, data_bytes);
      }
      if (range.begin < end) {
        bad_input("{}: tensor '{}': expected its data to begin at {} or later, got {} (overlap)",
                  name_, tensor, end, range.begin);
      }
      end = range.begin + range.bytes;
    }
    // Copies of unaligned tensors come last: a malformed file never makes one.
    for (size_t i = 0; i < ranges_.size(); ++i) {
      StoredTensor& tensor = file_.tensors.tensors[i];
      const auto bytes = image_.subspan(begin + ranges_[i].begin, ranges_[i].bytes);
      const size_t alignment = std::max<size_t>(1, dtype_size(tensor.dtype));
      tensor.data = aligned_data(bytes, alignment, file_.tensors.owners);
    }
  }

  std::span<const std::byte> image_;
  const std::string& name_;
  ByteReader in_;
  GgufFile file_;
  uint64_t tensors_ = 0, keys_ = 0, alignment_ = kGgufAlignment;
  std::set<std::string, std::less<>> names_;
  std::vector<Range> ranges_;
};

GgufFile read_gguf(std::span<const std::byte> image, const std::string& name) {
  return GgufReader(image, name).read();
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const GgufValue* GgufMetadata::find(std::string_view key, bool is_array,
                                    std::string_view expected) const {
  const GgufValue* value = find(key);
  if (value != nullptr && value->is_array != is_array) wrong_type(key, expected);
  return value;
}

void GgufMetadata::wrong_type(std::string_view key, std::string_view expected) const {
  const GgufValue& value = values_.at(key);
  bad_input("{}: key {}: expected {}, got {}{}", file_, printable(key), expected,
            value.is_array ? "an array of " : "", gguf_type_name(value.type));
}

int64_t GgufMetadata::whole(std::string_view key, const GgufValue& value, uint64_t index,
                            std::string_view expected) const {
  const std::byte* at = value.data.data() + index * element_bytes(value.type);
  switch (value.type) {
    case GgufType::kU8:
      return load<uint8_t>(at);
    case GgufType::kI8:
      return load<int8_t>(at);
    case GgufType::kU16:
      return load<uint16_t>(at);
    case GgufType::kI16:
      return load<int16_t>(at);
    case GgufType::kU32:
      return load<uint32_t>(at);
    case GgufType::kI32:
      return load<int32_t>(at);
    case GgufType::kI64:
      return load<int64_t>(at);
    case GgufType::kU64: {
      const auto number = load<uint64_t>(at);
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        bad_input("{}: key {}: expected a number of 63 bits, got {}", file_, printable(key),
                  number);
      }
      return static_cast<int64_t>(number);
    }
    default:
      wrong_type(key, expected);
  }
}

std::optional<int64_t> GgufMetadata::get_int(std::string_view key) const {
  const GgufValue* value = find(key, false, "a whole number");
  if (value == nullptr) return std::nullopt;
  return whole(key, *value, 0, "a whole number");
}

std::optional<double> GgufMetadata::get_number(std::string_view key) const {
  const GgufValue* value = find(key, false, "a number");
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::kF32) return static_cast<double>(load<float>(value->data.data()));
  if (value->type == GgufType::kF64) return load<double>(value->data.data());
  return static_cast<double>(whole(key, *value, 0, "a number"));
}

std::optional<bool> GgufMetadata::get_bool(std::string_view key) const {
  const GgufValue* value = find(key, false, "a bool");
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) wrong_type(key, "a bool");
  return load<uint8_t>(value->data.data()) != 0;
}

std::optional<std::string_view> GgufMetadata::get_string(std::string_view key) const {
  const GgufValue* value = find(key, false, "a string");
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) wrong_type(key, "a string");
  return as_text(value->data);
}

std::vector<std::string_view> GgufMetadata::get_strings(std::string_view key) const {
  std::vector<std::string_view> out;
  const GgufValue* value = find(key, true, "an array of string");
  if (value == nullptr) return out;
  if (value->type != GgufType::kString) wrong_type(key, "an array of string");
  out.reserve(value->count);
  ByteReader in(value->data, file_);
  for (uint64_t i = 0; i < value->count; ++i) out.push_back(in.text(in.u64()));
  return out;
}

std::vector<float> GgufMetadata::get_floats(std::string_view key) const {
  std::vector<float> out;
  const GgufValue* value = find(key, true, "an array of f32");
  if (value == nullptr) return out;
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    out.push_back(value->type == GgufType::kF32
                      ? load<float>(value->data.data() + i * sizeof(float))
                      : static_cast<float>(whole(key, *value, i, "an array of f32")));
  }
  return out;
}

std::vector<int32_t> GgufMetadata::get_ints(std::string_view key) const {
  std::vector<int32_t> out;
  const GgufValue* value = find(key, true, "an array of i32");
  if (value == nullptr) return out;
  out.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const int64_t number = whole(key, *value, i, "an array of i32");
    if (number != static_cast<int32_t>(number)) {
      bad_input("{}: key {}: element {}: expected a number of 32 bits, got {}", file_,
                printable(key), i, number);
    }
    out.push_back(static_cast<int32_t>(number));
  }
  return out;
}

}  // namespace adder
