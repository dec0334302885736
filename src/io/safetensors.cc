#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "io/json_lenient.h"
#include "io/mmap_file.h"
#include "io/printable.h"

namespace adder {
namespace {

constexpr uint64_t kMaxJsonBytes = 100'000'000;  // the limit of the format's own library
constexpr size_t kMaxDimensions = 8;
constexpr size_t kLengthBytes = 8;

struct Range {
  uint64_t begin, end;
};

uint64_t read_u64_le(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// Quantised and complex types (F8_E4M3, F8_E5M2, U16, C64, ...) are left to a later format.
DType parse_dtype(const std::string& text, const std::string& field) {
  constexpr std::array kKnown = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI8,
                                 DType::kU8,  DType::kI16, DType::kI32,  DType::kI64, DType::kBool};
  for (const DType t : kKnown) {
    if (dtype_name(t) == text) return t;
  }
  fail(ErrorCode::kUnsupported,
       "{}: expected dtype F32, F16, BF16, F64, I8, U8, I16, I32, I64 or BOOL, got {}", field,
       printable(text));
}

// Dimensions as int64; a scalar has none. 8 are more than any checkpoint has, and bound the work.
std::vector<int64_t> parse_shape(const JsonValue& entry, const std::string& field) {
  const auto dims = entry.get_array("shape");
  if (!dims) bad_input("{}: 'shape' is missing", field);
  if (dims->size() > kMaxDimensions) {
    bad_input("{}: expected at most {} dimensions, got {}", field, kMaxDimensions, dims->size());
  }
  std::vector<int64_t> shape;
  for (const JsonValue& dim : *dims) {
    shape.push_back(dim.as_int());
    if (shape.back() < 0) bad_input("{}: 'shape' holds {}", field, shape.back());
  }
  return shape;
}

// Bytes of the elements, refusing products that leave int64. Zeros are left out of the product, so
// that a partial product (a stride) cannot overflow either.
uint64_t byte_count(const std::vector<int64_t>& shape, DType dtype, const std::string& field) {
  int64_t bytes = static_cast<int64_t>(dtype_size(dtype));
  bool empty = false;
  for (const int64_t dim : shape) {
    empty = empty || dim == 0;
    if (dim != 0 && __builtin_mul_overflow(bytes, dim, &bytes)) {
      bad_input("{}: the product of 'shape' overflows", field);
    }
  }
  return empty ? 0 : static_cast<uint64_t>(bytes);
}

// [begin, end) relative to the end of the header.
Range parse_offsets(const JsonValue& entry, uint64_t data_bytes, const std::string& field) {
  const auto offsets = entry.get_array("data_offsets");
  if (!offsets || offsets->size() != 2) {
    bad_input("{}: expected 'data_offsets' [begin, end]", field);
  }
  const int64_t begin = (*offsets)[0].as_int(), end = (*offsets)[1].as_int();
  if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data_bytes) {
    bad_input("{}: 'data_offsets' [{}, {}] leave the {} bytes of data", field, begin, end,
              data_bytes);
  }
  return {static_cast<uint64_t>(begin), static_cast<uint64_t>(end)};
}

// Every byte of the data belongs to exactly one tensor. Sorted by (begin, end), each range must
// begin where the one before ended; empty tensors sit on such a border.
void check_cover(std::vector<std::pair<Range, const std::string*>> ranges, uint64_t data_bytes,
                 const std::string& file) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  uint64_t covered = 0;
  for (const auto& [range, name] : ranges) {
    if (range.begin != covered) {
      bad_input("{}: tensor {}: expected its data to begin at {}, got {} ({})", file,
                printable(*name), covered, range.begin, range.begin < covered ? "overlap" : "gap");
    }
    covered = range.end;
  }
  if (covered != data_bytes) {
    bad_input("{}: expected {} bytes of data, got {}", file, covered, data_bytes);
  }
}

}  // namespace

TensorFile read_safetensors(std::span<const std::byte> image, const std::string& name) {
  if (image.size() < kLengthBytes) {
    bad_input("{}: expected a safetensors file, got {} bytes", name, image.size());
  }
  const uint64_t header_bytes = read_u64_le(image);
  const uint64_t rest = image.size() - kLengthBytes;
  if (header_bytes > kMaxJsonBytes || header_bytes > rest) {
    bad_input("{}: header length: expected at most {}, got {} (not safetensors, or cut off)", name,
              std::min(rest, kMaxJsonBytes), header_bytes);
  }
  const auto header = image.subspan(kLengthBytes, header_bytes);
  const auto data = image.subspan(kLengthBytes + header_bytes);
  // The parser bounds depth, count and strings, and refuses a name that appears twice.
  const JsonValue root = JsonValue::parse(
      {reinterpret_cast<const char*>(header.data()), header.size()}, name + " (header)");
  if (!root.is_object()) bad_input("{}: expected a JSON object as header", name);

  TensorFile file;
  std::vector<Range> ranges;
  for (const std::string& tensor_name : root.keys()) {
    if (tensor_name == "__metadata__") continue;
    const std::string field = name + ": tensor " + printable(tensor_name);
    if (!is_sane_name(tensor_name)) bad_input("{}: a name that no format writes", field);
    const auto entry = root.get_object(tensor_name);
    if (!entry) bad_input("{}: expected an object, got null", field);
    const auto dtype = entry->get_string("dtype");
    if (!dtype) bad_input("{}: 'dtype' is missing", field);

    StoredTensor tensor;
    tensor.name = tensor_name;
    tensor.file = name;
    tensor.dtype = parse_dtype(*dtype, field);
    tensor.shape = parse_shape(*entry, field);
    const uint64_t bytes = byte_count(tensor.shape, tensor.dtype, field);
    const Range range = parse_offsets(*entry, data.size(), field);
    if (range.end - range.begin != bytes) {
      bad_input("{}: expected {} bytes for its shape, got {}", field, bytes,
                range.end - range.begin);
    }
    tensor.stride = contiguous_strides(tensor.shape);
    file.tensors.push_back(std::move(tensor));
    ranges.push_back(range);
  }

  std::vector<std::pair<Range, const std::string*>> named;
  for (size_t i = 0; i < ranges.size(); ++i) named.emplace_back(ranges[i], &file.tensors[i].name);
  check_cover(std::move(named), data.size(), name);

  // Copies of unaligned tensors come last: a malformed file never makes one.
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto bytes = data.subspan(ranges[i].begin, ranges[i].end - ranges[i].begin);
    file.tensors[i].data = aligned_data(bytes, dtype_size(file.tensors[i].dtype), file.owners);
  }
  return file;
}

TensorFile open_safetensors(const std::string& path) {
  auto mapping = MappedFile::open(path);
  TensorFile file = read_safetensors(mapping->bytes(), path);
  file.mapping = std::move(mapping);
  return file;
}

}  // namespace adder
