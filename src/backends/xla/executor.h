// What runs programs: a PJRT plugin, or the interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/xla/program.h"

namespace adder::xla {

// The arrays of a step have the types of those of the step before, and share them.
using TypePtr = std::shared_ptr<const Type>;

// An array in the memory of an executor. Made by Executor::upload and Executable::run.
class Array {
 public:
  virtual ~Array() = default;
  const Type& type() const { return *type_; }
  const TypePtr& shared_type() const { return type_; }

 protected:
  explicit Array(TypePtr type) : type_(std::move(type)) {}

 private:
  TypePtr type_;
};
using ArrayPtr = std::shared_ptr<Array>;

class Executable {
 public:
  virtual ~Executable() = default;
  // Enqueues the program. The arrays of donated arguments must not be used afterwards. Results may
  // not be ready when this returns; Executor::download waits for them. Throws Error(kIo) where the
  // device fails or has no memory left, with what the plugin says.
  virtual void run_into(std::span<const ArrayPtr> arguments, std::vector<ArrayPtr>& results) = 0;
  std::vector<ArrayPtr> run(std::span<const ArrayPtr> arguments) {
    std::vector<ArrayPtr> results;
    run_into(arguments, results);
    return results;
  }
};

struct MemoryUse {
  int64_t used = 0, limit = 0;  // bytes; limit 0: not known
  bool whole_device = false;    // by its driver, with other programs; else this executor's arrays
};

// Executors, their programs and their arrays are one thread's at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  // Whether it computes on the processor of this machine.
  virtual bool on_host() const = 0;
  virtual std::string description() const = 0;  // "xla, <plugin>, <device>"
  virtual ArrayPtr upload_as(const TypePtr& type, std::span<const std::byte> bytes) = 0;
  ArrayPtr upload(Type type, std::span<const std::byte> bytes) {
    return upload_as(std::make_shared<const Type>(std::move(type)), bytes);
  }
  // Waits for the array and copies it out, whole. Throws as Executable::run.
  virtual void download(Array& array, std::span<std::byte> bytes) = 0;
  // Whether products with 16-bit weights cost a conversion of the whole matrix each time, so that
  // it is worth twice the memory to widen them once.
  virtual bool widens_weights() const { return false; }
  // Whether the product of one row and a matrix is faster as a batch of products with its parts.
  virtual bool splits_row_products() const { return false; }
  virtual std::unique_ptr<Executable> compile(const Program& program) = 0;
  virtual std::optional<MemoryUse> memory() const { return std::nullopt; }
  // Programs that compile() has compiled, and those that it has taken from the disk instead.
  virtual int64_t compiled() const = 0;
  virtual int64_t from_cache() const = 0;
  // Of all these, those that were found on the disk or put there, for the next process.
  virtual int64_t on_disk() const { return 0; }
};

// Runs programs one operation after another on the CPU in the order in which they are written:
// slow, and independent of any plugin. For tests, and as `--device xla:interpreter`.
std::unique_ptr<Executor> make_interpreter();

// name: a file; or the name of a plugin to be found: "cpu", "cuda", "tpu"; or empty for
// ADDER_PJRT_PLUGIN, else the first that is found. Throws Error(kUnsupported), one line that says
// what was looked for and where, or which version was expected and found.
// jit_cache_mb: as for ExecutableCache::of_environment().
std::unique_ptr<Executor> make_pjrt_executor(std::string_view name,
                                             std::optional<uint64_t> jit_cache_mb = {});

}  // namespace adder::xla
