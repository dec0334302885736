// The one exception type of the library and the checks that throw it.
//
// The library never prints, aborts or exits: it throws adder::Error, which is caught at three
// borders only (command line, server, Python bindings).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace adder {

enum class ErrorCode {
  kBadInput,     // a file, a request or an argument is wrong; the message says what was expected
  kIo,           // the operating system or the network refused
  kUnsupported,  // well-formed, but outside what this build can do
  kNotFound,     // what the request names does not exist
  kConflict,     // what the request would make exists already
  kTimeout,      // its time is over
  kBusy,         // not now: a queue is full, or somebody else is using it
  kInternal,     // a broken invariant: a bug of ours
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Throws Error with a formatted message. Messages name the file and the field, and read
// "expected X, got Y" where a value is at fault.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::kBadInput, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace adder

// Host-side precondition of a public entry point: throws Error(kBadInput).
#define ADDER_CHECK(condition, ...)                                              \
  do {                                                                           \
    if (!(condition)) ::adder::fail(::adder::ErrorCode::kBadInput, __VA_ARGS__); \
  } while (false)
