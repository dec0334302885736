#include "poll.h"

#include <pybind11/pybind11.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "core/error.h"

namespace adder::python {
namespace {

using Clock = std::chrono::steady_clock;

// Taking the GIL from a busy thread takes its switch interval, 5 ms.
constexpr auto kInterval = std::chrono::milliseconds(50);

}  // namespace

Interrupts::Interrupts(std::shared_ptr<const Cancel> cancel)
    : cancel_(std::move(cancel)),
      main_thread_(::syscall(SYS_gettid) == ::getpid()),  // Python handles signals there alone
      looked_(Clock::now()) {}

void Interrupts::operator()() {
  if (cancel_ && cancel_->load()) fail(ErrorCode::kBusy, "cancelled");
  if (!main_thread_ || Clock::now() - looked_ < kInterval) return;
  {
    const pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
  looked_ = Clock::now();
}

}  // namespace adder::python
