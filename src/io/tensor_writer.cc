#include "io/tensor_writer.h"

#include <algorithm>

#include "core/error.h"

namespace adder {

void TensorWriter::declare(std::string name, DType dtype, std::vector<int64_t> shape) {
  if (begun_) fail(ErrorCode::kInternal, "tensor writer: '{}' is declared too late", name);
  const BlockShape block = block_shape(dtype);
  const int64_t columns = shape.empty() ? 1 : shape.back();
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    if (dim <= 0 || __builtin_mul_overflow(elements, dim, &elements)) {
      fail(ErrorCode::kInternal, "tensor writer: '{}': expected sizes above 0, got {}", name, dim);
    }
  }
  if (columns % block.elements != 0) {
    fail(ErrorCode::kInternal, "tensor writer: '{}': {} columns are not whole blocks of {} in {}",
         name, columns, block.elements, dtype_name(dtype));
  }
  data_bytes_ = (data_bytes_ + alignment_ - 1) / alignment_ * alignment_;
  const uint64_t bytes = row_bytes(dtype, elements);
  declared_.push_back({std::move(name), dtype, std::move(shape), data_bytes_, bytes});
  data_bytes_ += bytes;
}

void TensorWriter::begin() {
  begun_ = true;
  const std::string text = header();
  sink_(std::as_bytes(std::span(text)));
}

void TensorWriter::pad_to(uint64_t offset) {
  static constexpr std::byte kZeros[64] = {};
  while (written_ < offset) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(offset - written_, sizeof kZeros));
    sink_(std::span(kZeros, n));
    written_ += n;
  }
}

void TensorWriter::write(std::span<const std::byte> bytes) {
  if (!begun_) begin();
  if (bytes.empty()) return;
  if (current_ < declared_.size() &&
      written_ == declared_[current_].offset + declared_[current_].bytes) {
    ++current_;
  }
  if (current_ == declared_.size()) {
    fail(ErrorCode::kInternal, "tensor writer: {} bytes beyond the last tensor", bytes.size());
  }
  const Declared& tensor = declared_[current_];
  pad_to(tensor.offset);
  const uint64_t left = tensor.offset + tensor.bytes - written_;
  if (bytes.size() > left) {
    fail(ErrorCode::kInternal, "tensor writer: '{}': expected at most {} bytes more, got {}",
         tensor.name, left, bytes.size());
  }
  sink_(bytes);
  written_ += bytes.size();
}

void TensorWriter::finish() {
  if (!begun_) begin();
  if (written_ != data_bytes_) {
    fail(ErrorCode::kInternal, "tensor writer: expected {} bytes of data, got {}", data_bytes_,
         written_);
  }
  pad_to((data_bytes_ + alignment_ - 1) / alignment_ * alignment_);
}

}  // namespace adder
