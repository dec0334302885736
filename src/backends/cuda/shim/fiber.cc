#include "backends/cuda/shim/fiber.h"

#include <boost/context/fiber.hpp>
#include <utility>

#include "core/buffer.h"

// AddressSanitizer keeps a picture of the stack and must hear of every change.
#if defined(__SANITIZE_ADDRESS__)
#define ADDER_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDER_ASAN_FIBERS 1
#endif
#endif
#ifdef ADDER_ASAN_FIBERS
#include <sanitizer/common_interface_defs.h>
#endif

namespace adder::emulator {
namespace {

namespace ctx = boost::context;

#ifdef ADDER_ASAN_FIBERS
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif

// The stack belongs to the Fiber and is used again and again.
struct BorrowedStack {
  void* memory;
  ctx::stack_context allocate() const {
    ctx::stack_context context;
    context.size = kStackBytes;
    context.sp = static_cast<char*>(memory) + kStackBytes;
    return context;
  }
  void deallocate(ctx::stack_context&) const {}
};

}  // namespace

struct Fiber::Impl {
  Buffer stack = allocate_host(kStackBytes);
  ctx::fiber inside, outside;
  const std::function<void()>* main = nullptr;
  bool ended = true;
  // The two sides of a switch, for AddressSanitizer.
  void* outside_fake = nullptr;
  void* inside_fake = nullptr;
  const void* outside_bottom = nullptr;
  size_t outside_size = 0;

  void before_entering() {
#ifdef ADDER_ASAN_FIBERS
    __sanitizer_start_switch_fiber(&outside_fake, stack.data(), kStackBytes);
#endif
  }
  void after_entering() {
#ifdef ADDER_ASAN_FIBERS
    __sanitizer_finish_switch_fiber(inside_fake, &outside_bottom, &outside_size);
#endif
  }
  void before_leaving([[maybe_unused]] bool for_ever) {
#ifdef ADDER_ASAN_FIBERS
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &inside_fake, outside_bottom, outside_size);
#endif
  }
  void after_leaving() {
#ifdef ADDER_ASAN_FIBERS
    __sanitizer_finish_switch_fiber(outside_fake, nullptr, nullptr);
#endif
  }
};

Fiber::Fiber() : impl_(std::make_unique<Impl>()) {}
Fiber::~Fiber() = default;

void Fiber::start(const std::function<void()>* main) {
  impl_->main = main;
  impl_->ended = false;
  impl_->inside_fake = nullptr;
  impl_->inside = ctx::fiber(std::allocator_arg, BorrowedStack{impl_->stack.data()},
                             [impl = impl_.get()](ctx::fiber&& outside) {
                               impl->after_entering();
                               impl->outside = std::move(outside);
                               (*impl->main)();
                               impl->ended = true;
                               impl->before_leaving(/*for_ever=*/true);
                               return std::move(impl->outside);
                             });
}

bool Fiber::resume() {
  impl_->before_entering();
  ctx::fiber inside = std::move(impl_->inside).resume();
  impl_->after_leaving();
  impl_->inside = std::move(inside);
  return !impl_->ended;
}

void Fiber::leave() {
  impl_->before_leaving(/*for_ever=*/false);
  ctx::fiber outside = std::move(impl_->outside).resume();
  impl_->after_entering();
  impl_->outside = std::move(outside);
}

}  // namespace adder::emulator
