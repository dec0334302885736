// Writing tensor containers front to back, one tensor at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace adder {

// Takes the bytes of a file in order, e.g. AtomicFile::write.
using ByteSink = std::function<void(std::span<const std::byte>)>;

// Declare every tensor, then write their bytes in the order of declaration. Nothing but the
// declarations is kept in memory. Misuse throws Error(kInternal).
class TensorWriter {
 public:
  struct Declared {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;  // torch's order, the last axis contiguous
    uint64_t offset;             // from the first byte of the data
    uint64_t bytes;
  };

  virtual ~TensorWriter() = default;
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;

  // The last axis must be whole blocks of a block format.
  void declare(std::string name, DType dtype, std::vector<int64_t> shape);

  // The next bytes of the tensors' data, a whole tensor, some rows or any other part that does not
  // reach into the next tensor. Padding between tensors is added here.
  void write(std::span<const std::byte> bytes);

  // Checks that every declared byte was written. A file without tensors gets its header here.
  void finish();

  const std::vector<Declared>& declared() const { return declared_; }

 protected:
  TensorWriter(ByteSink sink, size_t alignment) : sink_(std::move(sink)), alignment_(alignment) {}
  bool has_begun() const { return begun_; }

 private:
  // All that stands before the data, its padding included.
  virtual std::string header() const = 0;
  void begin();
  void pad_to(uint64_t offset);

  ByteSink sink_;
  size_t alignment_;  // of every tensor's offset
  std::vector<Declared> declared_;
  uint64_t data_bytes_ = 0;  // declared so far
  uint64_t written_ = 0;
  size_t current_ = 0;  // the tensor that the next byte belongs to
  bool begun_ = false;
};

}  // namespace adder
