#include "backends/cuda/shim/emulator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "backends/cuda/shim/fiber.h"
#include "core/error.h"

namespace adder::emulator {
namespace {

constexpr unsigned kMaxThreads = 1024, kWarp = 32;
constexpr size_t kMaxShared = 227 << 10;
// So many turns in a row in which threads did nothing but wait are a deadlock.
constexpr uint64_t kMaxIdleTurns = 2'000'000;
// How often somebody else is looked for in place of a slow thread.
constexpr int kPatience = 16;

// Who is slow in a grid. Threads that are all alike seldom fall far behind each other, and then
// what is missing between a barrier and a distant use of its data does not show.
enum class Laggards { kNone, kWarps, kThreads };

struct Cancelled {};  // unwinds the fibers of a grid that has failed

struct Copy {
  void* to;
  const void* from;
  size_t size, bytes;
  bool done;
};

struct BulkCopy {
  void* to;
  const void* from;
  size_t bytes;
  uint64_t* barrier;
};

// As mbarrier has it: a phase is complete when nothing is pending. Fits into its 8 bytes.
struct Mbarrier {
  uint16_t expected, pending;  // arrivals per phase, and left in this one
  int32_t transfers : 31;      // bytes that are still to come
  uint32_t phase : 1;
};
static_assert(sizeof(Mbarrier) == sizeof(uint64_t));

struct Block;

struct Thread {
  Fiber fiber;
  Block* block = nullptr;
  Index3 index;
  unsigned linear = 0;
  bool ended = false;
  bool slow = false, napping = false;                   // hardly ever taken while others can run
  std::array<std::vector<Copy>, 8> groups;              // of cp.async; the last in use is open
  size_t n_groups = 0;                                  // closed ones
  std::array<std::byte, kWarp * kMaxDeposit> received;  // from the last warp collective
};

// Lanes of one warp that have met, until the last of the mask arrives.
struct Collective {
  uint32_t mask = 0, arrived = 0;
  int kind = 0;
  size_t bytes = 0;
  std::array<std::byte, kWarp * kMaxDeposit> values;
  std::vector<Thread*> waiting;
};

struct FreeShared {
  void operator()(std::byte* p) const { std::free(p); }
};

struct NamedBarrier {
  unsigned count = 0, arrived = 0;
  std::vector<Thread*> waiting;
};

struct Block {
  Index3 index;
  unsigned alive = 0;
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::vector<Collective>> warps;  // several, when parts of a warp go different ways
  std::array<NamedBarrier, 16> barriers;
  std::unique_ptr<std::byte, FreeShared> shared;  // exactly as long as asked for, for ASan
  size_t shared_bytes = 0;
  std::vector<BulkCopy> in_flight;
};

class Grid {
 public:
  void run(const Dim3& grid, const Dim3& block, size_t shared_bytes,
           const std::function<void()>& thread_main);

  Thread* current = nullptr;
  Dim3 grid_dim, block_dim;
  Schedule schedule;
  uint64_t launches = 0;  // with this schedule
  LaunchCount count;

  bool coin() { return (next_random() >> 40) & 1; }
  size_t below(size_t n) { return static_cast<size_t>(next_random() >> 33) % n; }
  void yield(bool ready);
  void wake(std::vector<Thread*>& waiting) {
    ready_.insert(ready_.end(), waiting.begin(), waiting.end());
    waiting.clear();
    idle_turns_ = 0;
  }
  void progress() { idle_turns_ = 0; }
  void check_idle() {
    if (++idle_turns_ > kMaxIdleTurns) kernel_error("its threads wait for ever");
  }

 private:
  uint64_t next_random() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return state_ ^ (state_ >> 29);
  }
  void start_block(Block& block, const Index3& index, size_t shared_bytes);
  Thread* take_ready();
  void run_some(const std::function<void()>& entry);
  void fail_with(std::exception_ptr error);

  uint64_t state_ = 1, idle_turns_ = 0;
  bool running_ = false, cancelled_ = false;
  Laggards laggards_ = Laggards::kNone;
  std::exception_ptr error_;
  std::vector<std::unique_ptr<Block>> blocks_;  // kept for the next grid
  std::vector<Thread*> ready_;
  std::function<void()> entry_;
};

Grid& grid() {
  thread_local Grid instance;
  return instance;
}

Thread& self() {
  Thread* thread = grid().current;
  if (thread == nullptr) fail(ErrorCode::kInternal, "emulator: called outside a kernel");
  return *thread;
}

void Grid::fail_with(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
  cancelled_ = true;
}

// Back to the scheduler. `ready`: may be resumed at once; else somebody will wake it.
void Grid::yield(bool ready) {
  Thread* thread = current;
  if (ready) ready_.push_back(thread);
  thread->fiber.leave();
  if (cancelled_) throw Cancelled{};
}

void Grid::start_block(Block& block, const Index3& index, size_t shared_bytes) {
  const unsigned n = block_dim.x * block_dim.y * block_dim.z;
  block.index = index;
  block.alive = n;
  block.in_flight.clear();
  block.warps.resize((n + kWarp - 1) / kWarp);
  for (auto& open : block.warps) open.clear();
  for (NamedBarrier& b : block.barriers) b = NamedBarrier{};
  if (!block.shared || block.shared_bytes != shared_bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 1024, std::max<size_t>(shared_bytes, 1)) != 0)
      throw std::bad_alloc();
    block.shared.reset(static_cast<std::byte*>(memory));
    block.shared_bytes = shared_bytes;
  }
  std::memset(block.shared.get(), 0xff, shared_bytes);  // NaN as float32 and as bfloat16
  while (block.threads.size() < n) block.threads.push_back(std::make_unique<Thread>());
  bool slow = false;
  for (unsigned i = 0; i < n; ++i) {
    if (laggards_ == Laggards::kThreads || (laggards_ == Laggards::kWarps && i % kWarp == 0))
      slow = coin();
    Thread& t = *block.threads[i];
    t.slow = slow;
    t.napping = false;
    t.block = &block;
    t.linear = i;
    t.index = {i % block_dim.x, i / block_dim.x % block_dim.y, i / (block_dim.x * block_dim.y)};
    t.ended = false;
    t.n_groups = 0;
    for (auto& group : t.groups) group.clear();
    t.fiber.start(&entry_);
    ready_.push_back(&t);
  }
  ++count.blocks;
}

Thread* Grid::take_ready() {
  size_t pick = below(ready_.size());
  for (int i = 0; i < kPatience && (ready_[pick]->slow || ready_[pick]->napping); ++i)
    pick = below(ready_.size());
  std::swap(ready_[pick], ready_.back());
  Thread* thread = ready_.back();
  ready_.pop_back();
  thread->napping = false;
  return thread;
}

// A thread that has ended counts no longer where a barrier waits for the whole block.
void release_whole_block(Grid& g, Block& block) {
  NamedBarrier& b = block.barriers[0];
  if (b.count == 0 && b.arrived > 0 && b.arrived == block.alive) {
    b.arrived = 0;
    g.wake(b.waiting);
  }
}

void Grid::run(const Dim3& grid, const Dim3& block, size_t shared_bytes,
               const std::function<void()>& thread_main) {
  if (running_) fail(ErrorCode::kInternal, "emulator: a kernel cannot launch a kernel");
  const uint64_t n_blocks = uint64_t{grid.x} * grid.y * grid.z;
  const uint64_t n_threads = uint64_t{block.x} * block.y * block.z;
  ADDER_CHECK(n_blocks > 0 && grid.y <= 65535 && grid.z <= 65535 && grid.x < 1u << 31,
              "emulator: grid ({}, {}, {}) cannot be launched", grid.x, grid.y, grid.z);
  ADDER_CHECK(n_threads > 0 && n_threads <= kMaxThreads,
              "emulator: expected 1 to {} threads in a block, got {}", kMaxThreads, n_threads);
  ADDER_CHECK(shared_bytes <= kMaxShared,
              "emulator: expected at most {} bytes of shared memory, "
              "got {}",
              kMaxShared, shared_bytes);
  running_ = true;
  cancelled_ = false;
  error_ = nullptr;
  grid_dim = grid;
  block_dim = block;
  idle_turns_ = 0;
  ready_.clear();
  ++count.grids;
  state_ = schedule.seed * 0x9e3779b97f4a7c15ull + ++launches;
  const size_t kind = below(4);
  laggards_ = kind == 0 ? Laggards::kWarps : kind == 1 ? Laggards::kThreads : Laggards::kNone;
  entry_ = [this, &thread_main] {
    try {
      if (!cancelled_) thread_main();
    } catch (const Cancelled&) {
    } catch (...) {
      fail_with(std::current_exception());
    }
  };

  std::vector<uint64_t> order(n_blocks);
  for (uint64_t i = 0; i < n_blocks; ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i)]);
  const auto resident = std::min<size_t>(
      n_blocks, 1 + below(static_cast<size_t>(std::max(schedule.resident_blocks, 1))));
  while (blocks_.size() < resident) blocks_.push_back(std::make_unique<Block>());

  size_t next = 0, live = 0;
  const auto start_next = [&](Block& b) {
    const uint64_t i = order[next++];
    start_block(b,
                {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                 static_cast<unsigned>(i / (uint64_t{grid.x} * grid.y))},
                shared_bytes);
    ++live;
  };
  for (size_t i = 0; i < resident; ++i) start_next(*blocks_[i]);
  while (live > 0) {
    if (ready_.empty()) {
      // Nobody can run: the waiting ones are unwound one by one.
      if (!cancelled_)
        fail_with(std::make_exception_ptr(
            Error(ErrorCode::kInternal,
                  "emulator: deadlock: the threads that are left wait for others that "
                  "never arrive")));
      for (auto& b : blocks_)
        for (auto& t : b->threads)
          if (t->block == b.get() && !t->ended && b->alive > 0) ready_.push_back(t.get());
      if (ready_.empty()) break;
    }
    Thread* thread = take_ready();
    if (thread->ended) continue;
    current = thread;
    ++count.switches;
    const bool more = thread->fiber.resume();
    current = nullptr;
    if (more) continue;
    thread->ended = true;
    idle_turns_ = 0;
    Block& b = *thread->block;
    if (--b.alive > 0) {
      release_whole_block(*this, b);
      continue;
    }
    --live;
    if (next < order.size() && !cancelled_) start_next(b);
  }
  for (auto& b : blocks_)
    for (auto& t : b->threads) t->block = nullptr;
  running_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void finish(const Copy& c) {
  std::memcpy(c.to, c.from, c.bytes);
  std::memset(static_cast<std::byte*>(c.to) + c.bytes, 0, c.size - c.bytes);
}

Mbarrier load(const uint64_t* barrier) {
  Mbarrier m;
  std::memcpy(&m, barrier, sizeof m);
  return m;
}

void store(uint64_t* barrier, Mbarrier m) {
  if (m.pending == 0 && m.transfers == 0) {
    m.phase ^= 1;
    m.pending = m.expected;
    grid().progress();
  }
  std::memcpy(barrier, &m, sizeof m);
}

void complete(const BulkCopy& c) {
  std::memcpy(c.to, c.from, c.bytes);
  Mbarrier m = load(c.barrier);
  m.transfers -= static_cast<int32_t>(c.bytes);
  store(c.barrier, m);
}

}  // namespace

uint64_t seed_from_environment() {
  const char* text = std::getenv("ADDER_EMULATOR_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

void set_schedule(const Schedule& schedule) {
  grid().schedule = schedule;
  grid().launches = 0;
}

namespace {
LaunchLog& launch_log() {
  thread_local LaunchLog log;
  return log;
}
}  // namespace

void set_launch_log(LaunchLog log) {
  launch_log() = std::move(log);
}

void log_launch(const void* kernel, const Dim3& grid_size, const Dim3& block, size_t shared_bytes) {
  if (launch_log()) launch_log()(kernel, grid_size, block, shared_bytes);
}

LaunchCount launch_count() {
  return grid().count;
}

void run_grid(const Dim3& grid_size, const Dim3& block, size_t shared_bytes,
              const std::function<void()>& thread_main) {
  grid().run(grid_size, block, shared_bytes, thread_main);
}

void kernel_error(const char* what) {
  const Thread& t = self();
  fail(ErrorCode::kInternal, "emulator: block ({}, {}, {}) thread {}: {}", t.block->index.x,
       t.block->index.y, t.block->index.z, t.linear, what);
}

const Index3& thread_index() {
  return self().index;
}
const Index3& block_index() {
  return self().block->index;
}
const Dim3& block_dim() {
  return grid().block_dim;
}
const Dim3& grid_dim() {
  return grid().grid_dim;
}
std::byte* shared_memory() {
  return self().block->shared.get();
}
unsigned linear_thread() {
  return self().linear;
}

void barrier(int id, unsigned count) {
  Thread& t = self();
  Block& block = *t.block;
  if (id < 0 || id > 15) kernel_error("barriers are numbered 0 to 15");
  if (count % kWarp != 0) kernel_error("a barrier counts whole warps");
  NamedBarrier& b = block.barriers[static_cast<size_t>(id)];
  if (b.arrived > 0 && b.count != count) kernel_error("threads disagree on a barrier's count");
  b.count = count;
  if (++b.arrived == (count == 0 ? block.alive : count)) {
    b.arrived = 0;
    grid().wake(b.waiting);
    return grid().yield(/*ready=*/true);  // the last one has no right to go first
  }
  b.waiting.push_back(&t);
  grid().yield(/*ready=*/false);
}

void nap() {
  grid().check_idle();
  self().napping = true;
  grid().yield(/*ready=*/true);
}

const std::byte* exchange(uint32_t mask, int kind, const void* value, size_t bytes) {
  Thread& t = self();
  const uint32_t bit = 1u << t.linear % kWarp;
  if ((mask & bit) == 0) kernel_error("a lane is not in the mask of its own warp collective");
  auto& open = t.block->warps[t.linear / kWarp];
  auto c = std::find_if(open.begin(), open.end(),
                        [&](const Collective& other) { return (other.mask & mask) != 0; });
  if (c == open.end()) {
    c = open.emplace(open.end());
    c->mask = mask, c->kind = kind, c->bytes = bytes;
  } else if (c->mask != mask || c->kind != kind || c->bytes != bytes) {
    kernel_error("lanes of a warp disagree on a warp collective");
  }
  std::memcpy(c->values.data() + t.linear % kWarp * bytes, value, bytes);
  c->arrived |= bit;
  if (c->arrived != mask) {
    c->waiting.push_back(&t);
    grid().yield(/*ready=*/false);
    return t.received.data();
  }
  for (Thread* other : c->waiting)
    std::memcpy(other->received.data(), c->values.data(), kWarp * bytes);
  std::memcpy(t.received.data(), c->values.data(), kWarp * bytes);
  grid().wake(c->waiting);
  open.erase(c);
  return t.received.data();
}

void async_copy(void* to, const void* from, size_t size, size_t bytes) {
  if (size != 4 && size != 8 && size != 16) kernel_error("cp.async copies 4, 8 or 16 bytes");
  if (bytes > size) kernel_error("cp.async reads more than it writes");
  if (reinterpret_cast<uintptr_t>(to) % size != 0 || reinterpret_cast<uintptr_t>(from) % size != 0)
    kernel_error("an address of cp.async is not aligned to its size");
  Thread& t = self();
  Copy copy{to, from, size, bytes, grid().coin()};
  if (copy.done) finish(copy);
  t.groups[t.n_groups].push_back(copy);
}

void async_commit() {
  Thread& t = self();
  if (t.n_groups + 1 == t.groups.size()) kernel_error("more than 7 groups of cp.async in flight");
  ++t.n_groups;
}

void async_wait(unsigned groups_left) {
  Thread& t = self();
  while (t.n_groups > groups_left) {
    for (const Copy& c : t.groups[0])
      if (!c.done) finish(c);
    t.groups[0].clear();
    std::rotate(t.groups.begin(), t.groups.begin() + 1, t.groups.end());
    --t.n_groups;
  }
}

void mbarrier_init(uint64_t* barrier, unsigned arrivals) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 != 0)
    kernel_error("an mbarrier is not aligned to 8");
  const auto n = static_cast<uint16_t>(arrivals);
  const Mbarrier m{n, n, 0, 0};
  std::memcpy(barrier, &m, sizeof m);
}

void mbarrier_expect(uint64_t* barrier, unsigned bytes) {
  Mbarrier m = load(barrier);
  m.transfers += static_cast<int32_t>(bytes);
  std::memcpy(barrier, &m, sizeof m);
}

void mbarrier_arrive(uint64_t* barrier) {
  Mbarrier m = load(barrier);
  if (m.pending == 0) kernel_error("more arrivals at an mbarrier than it expects");
  --m.pending;
  store(barrier, m);
}

bool mbarrier_test(uint64_t* barrier, unsigned parity) {
  auto& in_flight = self().block->in_flight;
  if (load(barrier).phase == (parity & 1) && !in_flight.empty() && grid().coin()) {
    const size_t pick = grid().below(in_flight.size());
    const BulkCopy copy = in_flight[pick];
    in_flight.erase(in_flight.begin() + static_cast<ptrdiff_t>(pick));
    complete(copy);
  }
  return load(barrier).phase != (parity & 1);
}

void bulk_copy(void* to, const void* from, size_t bytes, uint64_t* barrier) {
  for (auto address : {reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes})
    if (address % 16 != 0) kernel_error("a bulk copy's addresses and size are multiples of 16");
  const BulkCopy copy{to, from, bytes, barrier};
  if (grid().coin()) return complete(copy);
  self().block->in_flight.push_back(copy);
}

}  // namespace adder::emulator
