#include "shutdown_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace adder::cli {
namespace {

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t set = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { wait(); });
}

ShutdownSignals::~ShutdownSignals() {
  ending_ = true;
  ::pthread_kill(thread_.native_handle(), SIGINT);  // only to wake it
  thread_.join();
  const sigset_t set = ending_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void ShutdownSignals::on_first(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  action_ = std::move(action);
}

void ShutdownSignals::wait() {
  const sigset_t set = ending_signals();
  for (;;) {
    int signal = 0;
    if (::sigwait(&set, &signal) != 0) continue;
    if (ending_) return;
    const std::lock_guard lock(mutex_);
    const auto action = std::exchange(action_, nullptr);
    if (!action) ::_exit(0);
    action();
  }
}

}  // namespace adder::cli
