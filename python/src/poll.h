// What long work looks at between its steps: Ctrl-C, and whether somebody has cancelled it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

namespace adder::python {

// Shared by the one who waits for some work and the one who may cancel it.
using Cancel = std::atomic<bool>;
using CancelPtr = std::shared_ptr<Cancel>;

// Called without the GIL and with nothing locked. On the main thread, takes the GIL now and then to
// run Python's signal handlers; throws what they raise, and Error(kBusy) once `cancel` is set.
class Interrupts {
 public:
  explicit Interrupts(std::shared_ptr<const Cancel> cancel = nullptr);
  void operator()();

 private:
  std::shared_ptr<const Cancel> cancel_;
  bool main_thread_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace adder::python
