// One call of an operation whose operands lie in a device's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "kernels/array_device.h"
#include "ops/operand_list.h"
#include "ops/overlap.h"

namespace adder::ops {

// Where the operands of a call lie.
struct Place {
  ArrayDevice* device = nullptr;   // null: in host memory
  std::optional<uint64_t> stream;  // that work is queued on; none: the device's own
  bool wait = true;                // until the results are there
};

class DeviceCall {
 public:
  DeviceCall(const Place& place, std::string_view op);  // waits for its turn
  ~DeviceCall();                                        // an error's end: waits too
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;
  // Errors of the device show here at the latest.
  void finish();

  ArrayDevice& device() const { return *place_.device; }
  std::string_view op() const { return op_; }

  // Indices to the host; what shares memory with what is updated into other memory of the device.
  void detach(const OperandList& list);
  // body(), with every operand in host memory; what it has written is then copied back.
  void through_host(const OperandList& list, const std::function<void()>& body);

  // A copy of an array in host memory, valid as long as the call.
  ArrayView to_host(const ArrayView& array);
  // float32, row-major, in the device's memory; undefined contents.
  ArrayView temporary(std::initializer_list<int64_t> shape);
  // A float32 copy there, times `scale`. Not given: a null tensor.
  Tensor packed(const ArrayView& array, float scale = 1.0f);

 private:
  std::byte* download(const ArrayView& array, ArrayView* host);

  Place place_;
  std::string_view op_;
  bool ended_ = false;
  std::vector<Buffer> host_;
};

// The first two axes of an array as one, float32 with unit stride on the last axis, as the kernels'
// contracts ask for: where it lies, if it lies so, else in memory of the call, which is taken once
// and used again for arrays that are not larger.
class PackedRows {
 public:
  explicit PackedRows(DeviceCall& call) : call_(call) {}
  Tensor read(const ArrayView& array);   // not given: a null tensor
  Tensor write(const ArrayView& array);  // undefined contents
  void flush() const;                    // what has been written to the last one's place

 private:
  bool direct(const ArrayView& array) const;
  Tensor rows(const ArrayView& array) const;

  DeviceCall& call_;
  ArrayView written_, memory_;
  std::byte* own_ = nullptr;
};

// Rows of a batch that a device takes at once: as many as have copies of about a gigabyte, at least
// one. step_floats: of all operands of one step. 0: a row is longer than a packed batch can be.
int64_t device_rows(int64_t batch, int64_t seqlen, int64_t step_floats);

// A sequence for every row.
class RowBatch {
 public:
  RowBatch(int64_t rows, int64_t seqlen);
  PackedBatch packed() const { return {start_, slot_}; }

 private:
  std::vector<int32_t> start_, slot_;
};

}  // namespace adder::ops
