// Records operations on the values of buffers and runs them together.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/xla/executor.h"
#include "backends/xla/memory.h"
#include "backends/xla/tape.h"

namespace adder::xla {

// The rows that a matrix of n rows is padded to, so that few programs are compiled.
int64_t bucket(int64_t n);

struct Shape2 {
  Element element = Element::kF32;
  int64_t rows = 0, cols = 0;
};

class Recorder {
 public:
  explicit Recorder(std::unique_ptr<Executor> executor);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Executor& executor() const { return *executor_; }
  Memory& memory() { return *memory_; }

  // What load() throws where parts that were written one by one are read as one: the operation is
  // to be recorded anew after settle().
  struct Unsettled {
    uintptr_t base;
    View view;  // what is wanted in one piece
  };
  void settle(const Unsettled& memory);

  // The value of a tensor now: (rows, elements of an entry of its first axis), with rows beyond the
  // tensor's zero or what an operation left there. rows < 0: as many as the tensor has.
  Ref load(const Tensor& tensor, int64_t rows = -1);
  // The same for a tensor that will be written whole. What has not been written that way before
  // becomes an array first, so that the first step is the same program as the later ones.
  Ref load_state(const Tensor& tensor);
  // From now on the tensor is the first rows of `value`.
  void store(const Tensor& tensor, Ref value);

  // What a small array is for. Equal ones for the same are one argument of a program; those for
  // something else are never, or the program would depend on their values.
  enum class Role : uint8_t {
    kIds,
    kRows,
    kSlots,
    kValid,
    kRow,
    kCol,
    kPenalised,
    kPenalty,
    kTemperature,
    kMinP,
    kTopK,
    kTopP,
    kUniform  // the last one
  };
  // Small arrays that differ from step to step; a vector, or one number.
  Ref numbers(Role role, Element element, std::span<const std::byte> bytes, bool scalar = false);
  Ref indices(Role role, std::span<const int32_t> values, int64_t length, int32_t filler);
  Ref number(Role role, int32_t value);

  // A new value that the caller describes.
  Ref append(TapeOp op, std::initializer_list<int64_t> operands,
             std::span<const int64_t> attributes, Shape2 shape);
  Ref append(TapeOp op, std::initializer_list<int64_t> operands,
             std::initializer_list<int64_t> attributes, Shape2 shape);
  // A further value of the operation before.
  Ref append_results(TapeOp op, std::span<const int64_t> operands,
                     std::span<const int64_t> attributes, std::span<const Shape2> shapes);

  // Runs what has been recorded. `wanted`: a value that is needed beside what buffers hold. Where
  // that fails, what it was to write is lost: reading it throws Error(kIo) until it is written
  // anew as a whole, and what is left of a state after one slot has been written is NaN.
  ArrayPtr flush(Ref wanted = kNoRef);
  void flush_if_long();
  // The same where a step begins, so that the blocks of a prompt are one program again and again,
  // not one that is as long as the prompt.
  void begin_step();
  // The same, and waits until it is done.
  void synchronize();
  // Copies out an array that the program of the number `made` made (0: the host). A device may say
  // only then that a program has failed: lost is what was written by the programs after the last
  // one whose results were there.
  void download(Array& array, std::span<std::byte> bytes, uint64_t made);
  uint64_t last_program() const { return epoch_ - 1; }

  // What is compiled under this key, which says all about it; made when it is new.
  Executable& executable(std::vector<int64_t> key, const std::function<Program()>& make);

  // Copies between host memory and a contiguous tensor.
  void read(const Tensor& tensor, std::span<std::byte> host);
  void write(const Tensor& tensor, std::span<const std::byte> host);
  // One entry of the first axis: zeros (from < 0), or a copy of another.
  void set_slot(const Tensor& state, int32_t from, int32_t to);
  // A new buffer that holds an array.
  Tensor import(const Tensor& host, Buffer* owner);

  // For loops over what is recorded: between begin_capture and end_capture nothing runs, and
  // afterwards buffers hold what they held before.
  struct State {
    uintptr_t base = 0;
    View view;
    Ref before = kNoRef, after = kNoRef;
    int32_t argument = -1;  // which `before` is
  };
  struct Capture {
    Tape tape;
    std::vector<ArrayPtr> arguments;  // of the entries kArgument, in order; null: of a state
    std::vector<State> states;
  };
  // `extra`: arguments that the caller gives, of the types; the first values of the tape.
  std::vector<Ref> begin_capture(std::span<const Type> extra);
  Capture end_capture();
  void drop_capture();
  // Which small array this is, of the newest ones.
  std::optional<Role> role_of(const Array& array) const;
  // The array of a state, which the caller takes over, and the one that takes its place.
  ArrayPtr take_state(const State& state);
  void put_state(const State& state, ArrayPtr array);
  // Where nothing can, because of `failure`.
  void lose_states(std::span<const State> states, const std::exception& failure);

 private:
  struct Compiled {
    std::vector<int64_t> key;
    std::unique_ptr<Executable> executable;
  };

  struct Small {
    std::vector<std::byte> bytes;
    ArrayPtr array;  // null: none yet
    uint64_t epoch = 0;
    Ref ref = kNoRef;
  };
  // The newest ones of a role, that need not be uploaded again: the slots, the rows and the lengths
  // of a few steps.
  struct SmallRing {
    std::array<Small, 4> entries;
    size_t oldest = 0;
    std::vector<TypePtr> types;  // that there have been: few, as rows are padded
  };

  Ref argument(const ArrayPtr& array);
  static const TypePtr& small_type(SmallRing& ring, Element element, size_t bytes, bool scalar);
  // Throws Error(kIo) where the array is lost.
  const ArrayPtr& array_of(const Piece& piece) const;
  void revive(Piece& piece);
  Ref piece_ref(Piece& piece);
  Ref load_view(Storage& storage, const View& view, int64_t rows);
  Ref extract(Piece& piece, const View& view, int64_t rows);
  Ref zeros_value(Element element, int64_t rows, int64_t cols);
  Ref resize_rows(Ref value, int64_t rows);
  Ref rectangle(Ref value, Place place, int64_t rows, int64_t cols);
  void store_view(Storage& storage, const View& view, Ref value);
  void touch(Storage& storage);
  Executable& compiled();  // the program of the tape, outputs_ and donated_
  void end_program();
  Ref argument(const Type& type, ArrayPtr array);
  ArrayPtr slice_at(const Piece& piece, Place place, const View& part);
  void update_at(Storage& storage, Piece& piece, Place place, const ArrayPtr& update);
  static Piece* piece_around(Storage& storage, const View& row, Place* place);
  static std::vector<std::byte> part_of(std::span<const std::byte> whole, const View& view);
  std::vector<std::byte> compose(const Storage& storage, Element element);
  void replace(Storage& storage, const View& view, ArrayPtr array);
  ArrayPtr zeros(Element element, int64_t rows, int64_t cols);

  std::unique_ptr<Executor> executor_;
  std::shared_ptr<Memory> memory_;
  Tape tape_;
  uint64_t epoch_ = 1;
  std::vector<Shape2> shapes_;  // of the values
  std::vector<ArrayPtr> arguments_;
  std::weak_ptr<Array> newest_;  // of the last program
  std::vector<uintptr_t> dirty_;
  std::unordered_multimap<int64_t, Compiled> programs_;
  std::array<SmallRing, static_cast<size_t>(Role::kUniform) + 1> small_;

  std::string failure_;     // why pieces are lost
  uint64_t confirmed_ = 0;  // the last program that is known to have run

  // Of the step that is recorded or run: a step like the one before allocates nothing.
  std::vector<int32_t> padded_;
  std::vector<int64_t> key_tail_;
  std::vector<Piece*> written_;
  std::vector<Ref> outputs_;
  std::vector<int32_t> donated_;
  std::vector<ArrayPtr> results_;
  std::vector<uintptr_t> run_;    // buffers
  std::vector<std::byte> whole_;  // an array that is read

  bool capturing_ = false;
  struct Saved {
    uintptr_t base;
    std::vector<Piece> pieces;
  };
  std::vector<Saved> saved_;  // what a capture has changed
};

}  // namespace adder::xla
