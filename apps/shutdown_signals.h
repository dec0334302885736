// SIGTERM and Ctrl-C for a command that ends in order.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace adder::cli {

// From its construction on, the signals are taken by a thread of its own: made before all other
// threads, so that none of them is interrupted. The first signal calls on_first()'s function, or
// ends the program with status 0 while there is none; the second ends the program.
class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // Called on the thread of the signals. When this returns, no earlier function is running.
  void on_first(std::function<void()> action);

 private:
  void wait();

  std::mutex mutex_;
  std::function<void()> action_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace adder::cli
