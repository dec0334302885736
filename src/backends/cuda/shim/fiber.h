// A fiber: a function with a stack of its own that can be left in the middle and resumed.
#pragma once

#include <functional>
#include <memory>

namespace adder::emulator {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes it ready to run `main`, which must not throw. Only when it has not begun or has ended.
  void start(const std::function<void()>* main);
  // Runs it until it ends (false) or calls leave() (true).
  bool resume();
  // From within: back to resume().
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace adder::emulator
