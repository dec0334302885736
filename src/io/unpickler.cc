#include "io/unpickler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "core/error.h"
#include "io/byte_reader.h"
#include "io/printable.h"
#include "io/tensor_file.h"

namespace adder {
namespace {

using Callable = PickledData::Callable;
using Kind = PickledData::Kind;
using Ref = PickledData::Ref;
using Value = PickledData::Value;

// Bounds on what a hostile pickle can make this allocate: about 100 MB in all. A real one has some
// 20 values and 170 bytes a tensor.
constexpr size_t kMaxPickleBytes = size_t{64} << 20;
constexpr size_t kMaxPickleValues = 1'000'000;  // of 64 bytes each
constexpr size_t kMaxItems = 4'000'000;         // entries of all containers together
constexpr size_t kMaxPickleTensors = 200'000;   // of up to 300 bytes each
constexpr size_t kMaxStack = 1'000'000;
constexpr size_t kMaxMarks = 1'000;  // one for each level of nesting
constexpr size_t kMaxPickleRank = 8;
constexpr size_t kMaxLine = 256;
constexpr uint32_t kNotMemoized = UINT32_MAX;
constexpr std::string_view kOnly = "only tensors, dicts, strings and numbers are read";

struct StorageClass {
  std::string_view name;
  DType dtype;
};
// Names of the classes in module torch; files written on a GPU before PyTorch 1.11 say torch.cuda.
// An untyped storage counts its size in bytes.
constexpr std::array kStorages = {
    StorageClass{"FloatStorage", DType::kF32},     StorageClass{"HalfStorage", DType::kF16},
    StorageClass{"BFloat16Storage", DType::kBF16}, StorageClass{"DoubleStorage", DType::kF64},
    StorageClass{"CharStorage", DType::kI8},       StorageClass{"ByteStorage", DType::kU8},
    StorageClass{"ShortStorage", DType::kI16},     StorageClass{"IntStorage", DType::kI32},
    StorageClass{"LongStorage", DType::kI64},      StorageClass{"BoolStorage", DType::kBool},
    StorageClass{"UntypedStorage", DType::kU8},
};

// What a global may be; nothing for all that is refused.
std::optional<Value> known_global(std::string_view module, std::string_view name) {
  Value global{.kind = Kind::kGlobal};
  if (module == "collections" && name == "OrderedDict") {
    global.callable = Callable::kOrderedDict;
    return global;
  }
  if (module == "torch._utils") {
    global.callable = name == "_rebuild_tensor_v2"   ? Callable::kRebuildTensor
                      : name == "_rebuild_parameter" ? Callable::kRebuildParameter
                                                     : Callable::kNone;
    return global.callable == Callable::kNone ? std::nullopt : std::optional(global);
  }
  if (module == "torch" || module == "torch.cuda" || module == "torch.storage") {
    for (const StorageClass& storage : kStorages) {
      if (storage.name != name) continue;
      global.callable = Callable::kStorage;
      global.dtype = storage.dtype;
      return global;
    }
  }
  return std::nullopt;
}

}  // namespace

// The stack machine. Values live in data_.values_ and never move out of it; stack, memo and
// containers hold their indices. That makes sharing and cycles free of ownership, and freeing them
// free of recursion.
class Unpickler {
 public:
  Unpickler(std::span<const std::byte> pickle, const std::string& name)
      : name_(name), reader_(pickle, name_) {}

  PickledData run();

 private:
  template <typename... Args>
  [[noreturn]] void malformed(fmt::format_string<Args...> format, Args&&... args) const {
    bad_input("{}: byte {}: {}", name_, at_, fmt::format(format, std::forward<Args>(args)...));
  }
  bool step(uint8_t opcode);  // false at STOP

  Ref push(Value value);
  void push_ref(Ref ref);
  Ref top() const;
  Ref pop();
  std::vector<Ref> pop_to_mark();
  void push_tuple(size_t count);
  void push_int(int64_t value) { push({.kind = Kind::kInt, .integer = value}); }
  void push_text(Kind kind, uint64_t bytes) { push({.kind = kind, .text = reader_.text(bytes)}); }
  Value& container(Ref ref, Kind kind, std::string_view what);
  void add_items(Ref ref, const std::vector<Ref>& items, Kind kind);

  void memoize(uint64_t index);
  void recall(uint32_t index);
  void push_long();
  void push_global(std::string_view module, std::string_view name);
  void load_storage();
  void reduce();
  void build();
  Ref rebuild_tensor(const Value& arguments);
  std::vector<int64_t> integers(Ref tuple, std::string_view what) const;
  int64_t integer(Ref ref, std::string_view what) const;

  const std::string name_;
  ByteReader reader_;
  size_t at_ = 0;  // where the current opcode begins
  PickledData data_;
  size_t items_ = 0;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::vector<Ref> memo_;
  size_t memoized_ = 0;  // how many distinct entries: the index MEMOIZE writes to
};

PickledData Unpickler::run() {
  if (reader_.remaining() > kMaxPickleBytes) {
    bad_input("{}: expected at most {} bytes of pickle, got {}", name_, kMaxPickleBytes,
              reader_.remaining());
  }
  do {
    at_ = reader_.position();
  } while (step(reader_.u8()));
  return std::move(data_);
}

// Opcode names as in Python's pickletools. Left out on purpose, hence refused: whatever makes an
// object or calls something (INST, OBJ, NEWOBJ, EXT), sets, protocols 0 and 1, out-of-band buffers.
bool Unpickler::step(uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const int version = reader_.u8(); version < 2 || version > 5) {
        malformed("expected pickle protocol 2 to 5, got {}", version);
      }
      break;
    case 0x95:  // FRAME: only a hint about buffering
      if (const uint64_t bytes = reader_.u64(); bytes > reader_.remaining()) {
        malformed("cut off: a frame of {} bytes, got {}", bytes, reader_.remaining());
      }
      break;
    case '.':  // STOP
      if (stack_.size() != 1 || !marks_.empty()) {
        malformed("expected one value at the end, got {}", stack_.size());
      }
      data_.root_ = pop();
      return false;
    case '(':  // MARK
      if (marks_.size() >= kMaxMarks) malformed("nested deeper than {} levels", kMaxMarks);
      marks_.push_back(stack_.size());
      break;
    case 'N':  // NONE
      push({});
      break;
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      push({.kind = Kind::kBool, .integer = opcode == 0x88});
      break;
    case 'J':  // BININT
      push_int(static_cast<int32_t>(reader_.u32()));
      break;
    case 'K':  // BININT1
      push_int(reader_.u8());
      break;
    case 'M':  // BININT2
      push_int(reader_.u16());
      break;
    case 0x8a:  // LONG1
      push_long();
      break;
    case 'G': {  // BINFLOAT: the one big-endian field of the format
      uint64_t bits = 0;
      for (const std::byte b : reader_.take(8)) bits = bits << 8 | std::to_integer<uint64_t>(b);
      push({.kind = Kind::kFloat, .number = std::bit_cast<double>(bits)});
      break;
    }
    case 'U':   // SHORT_BINSTRING
    case 0x8c:  // SHORT_BINUNICODE
      push_text(Kind::kString, reader_.u8());
      break;
    case 'T':  // BINSTRING
    case 'X':  // BINUNICODE
      push_text(Kind::kString, reader_.u32());
      break;
    case 0x8d:  // BINUNICODE8
      push_text(Kind::kString, reader_.u64());
      break;
    case 'C':  // SHORT_BINBYTES
      push_text(Kind::kBytes, reader_.u8());
      break;
    case 'B':  // BINBYTES
      push_text(Kind::kBytes, reader_.u32());
      break;
    case 0x8e:  // BINBYTES8
      push_text(Kind::kBytes, reader_.u64());
      break;
    case ')':  // EMPTY_TUPLE
      push({.kind = Kind::kTuple});
      break;
    case 't': {  // TUPLE
      auto items = pop_to_mark();
      items_ += items.size();
      push({.kind = Kind::kTuple, .items = std::move(items)});
      break;
    }
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      push_tuple(opcode - size_t{0x84});
      break;
    case ']':  // EMPTY_LIST
      push({.kind = Kind::kList});
      break;
    case 'a': {  // APPEND
      const Ref item = pop();
      add_items(top(), {item}, Kind::kList);
      break;
    }
    case 'e': {  // APPENDS
      const auto items = pop_to_mark();
      add_items(top(), items, Kind::kList);
      break;
    }
    case '}':  // EMPTY_DICT
      push({.kind = Kind::kDict});
      break;
    case 's': {  // SETITEM
      const Ref value = pop(), key = pop();
      add_items(top(), {key, value}, Kind::kDict);
      break;
    }
    case 'u': {  // SETITEMS
      const auto items = pop_to_mark();
      add_items(top(), items, Kind::kDict);
      break;
    }
    case 'q':  // BINPUT
      memoize(reader_.u8());
      break;
    case 'r':  // LONG_BINPUT
      memoize(reader_.u32());
      break;
    case 0x94:  // MEMOIZE
      memoize(memoized_);
      break;
    case 'h':  // BINGET
      recall(reader_.u8());
      break;
    case 'j':  // LONG_BINGET
      recall(reader_.u32());
      break;
    case 'c': {  // GLOBAL
      const std::string_view module = reader_.line(kMaxLine);
      push_global(module, reader_.line(kMaxLine));
      break;
    }
    case 0x93: {  // STACK_GLOBAL
      const Value& name = data_.at(pop());
      const Value& module = data_.at(pop());
      if (name.kind != Kind::kString || module.kind != Kind::kString) {
        malformed("expected the name of a class");
      }
      push_global(module.text, name.text);
      break;
    }
    case 'R':  // REDUCE
      reduce();
      break;
    case 'b':  // BUILD
      build();
      break;
    case 'Q':  // BINPERSID
      load_storage();
      break;
    default:
      malformed("refused: pickle opcode 0x{:02x}; {}", opcode, kOnly);
  }
  return true;
}

// Every new value passes here, so this is where their number is bounded.
Ref Unpickler::push(Value value) {
  if (data_.values_.size() >= kMaxPickleValues || items_ > kMaxItems) {
    malformed("more than {} values", kMaxPickleValues);
  }
  const Ref ref = static_cast<Ref>(data_.values_.size());
  data_.values_.push_back(std::move(value));
  push_ref(ref);
  return ref;
}

void Unpickler::push_ref(Ref ref) {
  if (stack_.size() >= kMaxStack) malformed("more than {} values on the stack", kMaxStack);
  stack_.push_back(ref);
}

// The stack above the last mark; what lies below belongs to an enclosing value.
Ref Unpickler::top() const {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) malformed("an operation without its operand");
  return stack_.back();
}

Ref Unpickler::pop() {
  const Ref ref = top();
  stack_.pop_back();
  return ref;
}

// The values since the last mark, which goes with them.
std::vector<Ref> Unpickler::pop_to_mark() {
  if (marks_.empty()) malformed("an operation without its mark");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<Ref> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

void Unpickler::push_tuple(size_t count) {
  std::vector<Ref> items(count);
  for (size_t i = count; i-- > 0;) items[i] = pop();
  items_ += count;
  push({.kind = Kind::kTuple, .items = std::move(items)});
}

Value& Unpickler::container(Ref ref, Kind kind, std::string_view what) {
  Value& value = data_.values_[ref];
  if (value.kind != kind) malformed("expected a {}", what);
  return value;
}

// The entries of one container may come from the memo, so that they cost no new values: they have a
// bound of their own.
void Unpickler::add_items(Ref ref, const std::vector<Ref>& items, Kind kind) {
  Value& value = container(ref, kind, kind == Kind::kDict ? "dict" : "list");
  if (kind == Kind::kDict && items.size() % 2 != 0) malformed("a dict key without its value");
  items_ += items.size();
  if (items_ > kMaxItems) malformed("more than {} entries of lists and dicts", kMaxItems);
  value.items.insert(value.items.end(), items.begin(), items.end());
}

void Unpickler::memoize(uint64_t index) {
  // Picklers number the memo from 0 without holes, at most one entry for each value made.
  if (index > data_.values_.size()) malformed("memo entry {} is out of order", index);
  if (index >= memo_.size()) memo_.resize(static_cast<size_t>(index) + 1, kNotMemoized);
  Ref& entry = memo_[static_cast<size_t>(index)];
  if (entry == kNotMemoized) ++memoized_;
  entry = top();
}

void Unpickler::recall(uint32_t index) {
  if (index >= memo_.size() || memo_[index] == kNotMemoized) {
    malformed("memo entry {} does not exist", index);
  }
  push_ref(memo_[index]);
}

// A little-endian two's complement integer of 0 to 255 bytes.
void Unpickler::push_long() {
  const auto bytes = reader_.take(reader_.u8());
  if (bytes.size() > 8) {
    push({.kind = Kind::kBigInt});  // e.g. a random seed: kept as data, its value is not needed
    return;
  }
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i) bits |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (!bytes.empty() && bytes.size() < 8 && (bytes.back() & std::byte{0x80}) != std::byte{0}) {
    bits |= ~uint64_t{0} << (8 * bytes.size());
  }
  push_int(static_cast<int64_t>(bits));
}

// The gate: a class or function comes into being nowhere else, and only a few names pass.
void Unpickler::push_global(std::string_view module, std::string_view name) {
  auto global = known_global(module, name);
  if (!global) {
    malformed("refused: pickle asks for {}; {}", printable(fmt::format("{}.{}", module, name)),
              kOnly);
  }
  push(std::move(*global));
}

// Persistent id ('storage', class, key, location, size): the location (a device) does not matter.
void Unpickler::load_storage() {
  const Value& id = data_.at(pop());
  if (id.kind != Kind::kTuple || id.items.size() != 5 || data_.at(id.items[0]).text != "storage" ||
      data_.at(id.items[1]).callable != Callable::kStorage ||
      data_.at(id.items[2]).kind != Kind::kString) {
    malformed("expected a reference ('storage', class of storage, key, location, size)");
  }
  const int64_t size = integer(id.items[4], "the size of a storage");
  if (size < 0) malformed("a storage of {} elements", size);
  push({.kind = Kind::kStorage,
        .dtype = data_.at(id.items[1]).dtype,
        .integer = size,
        .text = data_.at(id.items[2]).text});
}

// "Call this with these arguments": three things can be meant, and none of them is called.
void Unpickler::reduce() {
  const Ref arguments_ref = pop();
  const Ref callable = pop();
  const Value& arguments = data_.at(arguments_ref);
  if (arguments.kind != Kind::kTuple) malformed("expected a tuple of arguments");
  const Callable function = data_.at(callable).callable;
  if (function == Callable::kOrderedDict) {
    if (!arguments.items.empty()) malformed("expected OrderedDict() without arguments");
    push({.kind = Kind::kDict});
  } else if (function == Callable::kRebuildTensor) {
    push_ref(rebuild_tensor(arguments));
  } else if (function == Callable::kRebuildParameter) {
    // (tensor, requires_grad, hooks)
    if (arguments.items.empty() || data_.at(arguments.items[0]).kind != Kind::kTensor) {
      malformed("expected a tensor as first argument of _rebuild_parameter");
    }
    push_ref(arguments.items[0]);
  } else {
    malformed("refused: pickle calls what is no function; {}", kOnly);
  }
}

// state_dict() hangs the attribute _metadata (module versions) on its OrderedDict; nothing needs
// it.
void Unpickler::build() {
  const Kind state = data_.at(pop()).kind;
  const Kind object = data_.at(top()).kind;
  if (object != Kind::kDict || state != Kind::kDict) {
    malformed("refused: pickle sets attributes of what is no OrderedDict; {}", kOnly);
  }
}

int64_t Unpickler::integer(Ref ref, std::string_view what) const {
  const Value& value = data_.at(ref);
  if (value.kind != Kind::kInt) malformed("expected an integer for {}", what);
  return value.integer;
}

// A shape or a stride.
std::vector<int64_t> Unpickler::integers(Ref tuple, std::string_view what) const {
  const Value& value = data_.at(tuple);
  if (value.kind != Kind::kTuple) malformed("expected a tuple for {}", what);
  if (value.items.size() > kMaxPickleRank) {
    malformed("expected at most {} dimensions, got {}", kMaxPickleRank, value.items.size());
  }
  std::vector<int64_t> out;
  for (const Ref item : value.items) {
    out.push_back(integer(item, what));
    if (out.back() < 0) malformed("expected {} not below zero, got {}", what, out.back());
  }
  return out;
}

// Only describes the tensor; the storage's bytes are looked up by whoever has the container.
// _rebuild_tensor_v2(storage, offset, shape, stride, requires_grad, hooks[, metadata]).
Ref Unpickler::rebuild_tensor(const Value& arguments) {
  if (arguments.items.size() < 4 || data_.at(arguments.items[0]).kind != Kind::kStorage) {
    malformed("expected _rebuild_tensor_v2(storage, offset, shape, stride, ...)");
  }
  const Value& storage = data_.at(arguments.items[0]);
  PickledTensor tensor{
      .dtype = storage.dtype, .storage_key = storage.text, .storage_size = storage.integer};
  tensor.offset = integer(arguments.items[1], "an offset");
  tensor.shape = integers(arguments.items[2], "a shape");
  tensor.stride = integers(arguments.items[3], "a stride");
  if (tensor.shape.size() != tensor.stride.size()) {
    malformed("a shape of {} dimensions with {} strides", tensor.shape.size(),
              tensor.stride.size());
  }
  if (!layout_fits(tensor.shape, tensor.stride, tensor.offset, tensor.storage_size)) {
    malformed("a tensor (offset {}, shape [{}], stride [{}]) leaves its storage of {} elements",
              tensor.offset, fmt::join(tensor.shape, ", "), fmt::join(tensor.stride, ", "),
              tensor.storage_size);
  }
  if (data_.tensors_.size() >= kMaxPickleTensors)
    malformed("more than {} tensors", kMaxPickleTensors);
  const Value value{.kind = Kind::kTensor, .integer = static_cast<int64_t>(data_.tensors_.size())};
  data_.tensors_.push_back(std::move(tensor));
  const Ref ref = push(value);
  stack_.pop_back();
  return ref;
}

PickledData unpickle(std::span<const std::byte> pickle, const std::string& name) {
  return Unpickler(pickle, name).run();
}

}  // namespace adder
