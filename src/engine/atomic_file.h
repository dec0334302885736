// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace adder {

// Writes under a temporary name in the target's directory; commit() renames it over the target.
// Without commit() nothing is left behind. Errors throw Error(kIo) naming the target.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Throws what the constructor would, without leaving anything behind: for asking before long
  // work.
  static void check_target(const std::string& target) { const AtomicFile probe(target); }

  void write(std::span<const std::byte> bytes);
  void commit();  // at most once
  // Where the bytes are until commit(), for reading them back before.
  const std::string& temporary() const { return name_; }

 private:
  [[noreturn]] void give_up() const;

  std::string target_, name_;  // name_ is empty once there is no temporary file
  int fd_;
};

}  // namespace adder
