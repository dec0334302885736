// A pickle machine that can only build data: dicts, lists, tuples, strings, numbers, booleans,
// None, and descriptions of torch tensors. It never calls anything. A pickle that asks for another
// class or function is refused by the name of what it asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"

namespace adder {

// Where a tensor's bytes lie and how they are laid out. Element (i, j, ...) is element
// offset + i * stride[0] + j * stride[1] + ... of the storage; all of them lie below storage_size.
struct PickledTensor {
  DType dtype = DType::kF32;
  std::string_view storage_key;  // entry "data/<key>" of the zip
  int64_t storage_size = 0;      // elements, as the pickle claims: the container must agree
  int64_t offset = 0;
  std::vector<int64_t> shape, stride;  // in elements
};

// What a pickle holds. Values refer to each other by index, so that shared and cyclic structures
// need no ownership. Strings point into the pickle, which must outlive this.
class PickledData {
 public:
  using Ref = uint32_t;
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kBigInt,
    kFloat,
    kString,
    kBytes,
    kTuple,
    kList,
    kDict,
    kGlobal,
    kStorage,
    kTensor
  };
  enum class Callable : uint8_t {
    kNone,
    kOrderedDict,
    kRebuildTensor,
    kRebuildParameter,
    kStorage
  };
  struct Value {
    Kind kind = Kind::kNone;
    Callable callable = Callable::kNone;  // kGlobal
    DType dtype = DType::kF32;            // kStorage, and kGlobal when it is a class of storage
    int64_t integer = 0;     // kBool, kInt; kStorage: elements; kTensor: index into tensors()
    double number = 0;       // kFloat
    std::string_view text;   // kString, kBytes; kStorage: key
    std::vector<Ref> items;  // kTuple, kList; kDict: key, value, key, value, ...
  };

  const Value& at(Ref ref) const { return values_[ref]; }
  size_t size() const { return values_.size(); }
  Ref root() const { return root_; }
  const std::vector<PickledTensor>& tensors() const { return tensors_; }

 private:
  friend class Unpickler;
  std::vector<Value> values_;
  std::vector<PickledTensor> tensors_;
  Ref root_ = 0;
};

// Protocols 2 to 5, the opcodes that torch.save emits. `name` is the file name in messages. Throws
// Error(kBadInput) for malformed pickles and for everything that is refused. Memory is bounded by
// 64 MB of pickle, 1 million values and 200000 tensors.
PickledData unpickle(std::span<const std::byte> pickle, const std::string& name);

}  // namespace adder
