// Programs one operation after another, in the order in which they are written.
#include <algorithm>
#include <new>
#include <utility>

#include "backends/xla/executor.h"
#include "backends/xla/interpreter_ops.h"
#include "core/error.h"

namespace adder::xla {

Cells::Cells(size_t bytes) : bytes_(bytes) {
  data_.reset(new (std::nothrow) std::byte[bytes]);
  if (!data_) fail(ErrorCode::kIo, "xla interpreter: no memory for an array of {} bytes", bytes);
}

namespace {

class HostArray final : public Array {
 public:
  HostArray(TypePtr type, CellsPtr cells) : Array(std::move(type)), cells_(std::move(cells)) {}

  // Fails where the array has been donated.
  CellsPtr cells() const {
    if (!cells_)
      fail(ErrorCode::kInternal, "xla interpreter: an array of {} is used after it was donated",
           type_text(type()));
    return cells_;
  }
  void consume() { cells_.reset(); }

 private:
  CellsPtr cells_;
};

HostArray& host_array(Array& array) {
  auto* host = dynamic_cast<HostArray*>(&array);
  if (!host) fail(ErrorCode::kInternal, "xla interpreter: an array of another executor");
  return *host;
}

// When the values that a block defines are read for the last time.
struct BlockPlan {
  struct Step {
    std::vector<Value> before;  // operands that nobody reads after the operation
    std::vector<Value> after;   // the same, of those that its regions read; results never read
    std::vector<BlockPlan> regions;
  };
  std::vector<Value> unused;  // arguments that nobody reads
  std::vector<Step> steps;
  std::vector<Value> outer;  // what the block reads of the blocks around it
};

bool has(const std::vector<Value>& values, Value v) {
  return std::ranges::find(values, v) != values.end();
}

class Planner {
 public:
  explicit Planner(size_t values) : last_(values, kOuter) {}

  BlockPlan plan(const Block& block) {
    BlockPlan plan;
    plan.steps.resize(block.ops.size());
    for (const Value v : block.arguments) last_[v] = kNever;
    for (size_t i = 0; i < block.ops.size(); ++i) {
      const Op& op = block.ops[i];
      for (const Block& region : op.regions) {
        plan.steps[i].regions.push_back(Planner(last_.size()).plan(region));
        for (const Value v : plan.steps[i].regions.back().outer) use(v, i, plan);
      }
      for (const Value v : op.operands) use(v, i, plan);
      for (const Value v : op.results) last_[v] = static_cast<int64_t>(i);
    }
    for (const Value v : block.results) use(v, block.ops.size(), plan);
    for (const Value v : block.arguments) release(v, plan);
    for (const Op& op : block.ops)
      for (const Value v : op.results) release(v, plan);
    for (size_t i = 0; i < block.ops.size(); ++i) split(block.ops[i], plan.steps[i]);
    return plan;
  }

 private:
  static constexpr int64_t kOuter = -2, kNever = -1;

  void use(Value v, size_t step, BlockPlan& plan) {
    if (last_[v] != kOuter) {
      last_[v] = static_cast<int64_t>(step);
    } else if (!has(plan.outer, v)) {
      plan.outer.push_back(v);
    }
  }

  void release(Value v, BlockPlan& plan) const {
    if (last_[v] == kNever) {
      plan.unused.push_back(v);
    } else if (last_[v] < std::ssize(plan.steps)) {
      plan.steps[last_[v]].after.push_back(v);
    }
  }

  // Moves what may go before the operation runs to `before`.
  static void split(const Op& op, BlockPlan::Step& step) {
    const auto goes_after = [&](Value v) {
      return !has(op.operands, v) ||
             std::ranges::any_of(step.regions, [&](const BlockPlan& r) { return has(r.outer, v); });
    };
    const auto kept = std::stable_partition(step.after.begin(), step.after.end(), goes_after);
    step.before.assign(kept, step.after.end());
    step.after.erase(kept, step.after.end());
  }

  std::vector<int64_t> last_;
};

// One run of a program.
class Frame {
 public:
  explicit Frame(const Program& program) : program_(program), cells_(program.types.size()) {}

  // Takes the arguments of a block and gives its results.
  std::vector<CellsPtr> run(const Block& block, const BlockPlan& plan,
                            std::vector<CellsPtr> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i)
      cells_[block.arguments[i]] = std::move(arguments[i]);
    drop(plan.unused);
    for (size_t i = 0; i < block.ops.size(); ++i) {
      run(block.ops[i], plan.steps[i]);
      drop(plan.steps[i].after);
    }
    std::vector<CellsPtr> results;
    results.reserve(block.results.size());
    for (const Value v : block.results) results.push_back(cells_[v]);
    for (const Value v : block.results)
      if (!has(plan.outer, v)) cells_[v].reset();
    return results;
  }

 private:
  void drop(const std::vector<Value>& values) {
    for (const Value v : values) cells_[v].reset();
  }

  void run(const Op& op, const BlockPlan::Step& step) {
    std::vector<Operand> operands;
    operands.reserve(op.operands.size());
    for (const Value v : op.operands) operands.push_back({&program_.types[v], cells_[v]});
    drop(step.before);
    if (op.code == Opcode::kWhile) {
      loop(op, step, std::move(operands));
    } else if (op.code == Opcode::kSort) {
      std::vector<CellsPtr> sorted = interpret_sort(op, operands);
      for (size_t i = 0; i < sorted.size(); ++i) cells_[op.results[i]] = std::move(sorted[i]);
    } else {
      cells_[op.results[0]] = compute(op, operands, program_.types[op.results[0]]);
    }
  }

  static CellsPtr compute(const Op& op, std::span<Operand> operands, const Type& result) {
    switch (op.code) {
      case Opcode::kConvert:
        return interpret_convert(operands[0], result);
      case Opcode::kDotGeneral:
        return interpret_dot(op, operands, result);
      case Opcode::kReduce:
        return interpret_reduce(op, operands, result);
      default:
        return op.code < Opcode::kDotGeneral ? interpret_movement(op, operands, result)
                                             : interpret_elementwise(op, operands, result);
    }
  }

  void loop(const Op& op, const BlockPlan::Step& step, std::vector<Operand> initial) {
    std::vector<CellsPtr> carried;
    carried.reserve(initial.size());
    for (Operand& operand : initial) carried.push_back(std::move(operand.cells));
    while (true) {
      const std::vector<CellsPtr> going = run(op.regions[0], step.regions[0], carried);
      if (*going[0]->as<uint8_t>() == 0) break;
      carried = run(op.regions[1], step.regions[1], std::move(carried));
    }
    for (size_t i = 0; i < carried.size(); ++i) cells_[op.results[i]] = std::move(carried[i]);
  }

  const Program& program_;
  std::vector<CellsPtr> cells_;
};

class InterpretedProgram final : public Executable {
 public:
  explicit InterpretedProgram(const Program& program)
      : program_(program), plan_(Planner(program.types.size()).plan(program_.main)) {}

  void run_into(std::span<const ArrayPtr> arguments, std::vector<ArrayPtr>& arrays) override {
    const Block& main = program_.main;
    if (arguments.size() != main.arguments.size())
      fail(ErrorCode::kInternal, "xla interpreter: expected {} arguments, got {}",
           main.arguments.size(), arguments.size());
    std::vector<CellsPtr> cells;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Type& expected = program_.types[main.arguments[i]];
      if (arguments[i]->type() != expected)
        fail(ErrorCode::kInternal, "xla interpreter: argument {}: expected {}, got {}", i,
             type_text(expected), type_text(arguments[i]->type()));
      cells.push_back(host_array(*arguments[i]).cells());
    }
    for (const int32_t donated : program_.donated) {
      if (donated < 0) continue;
      if (std::ranges::count(arguments, arguments[donated]) > 1)
        fail(ErrorCode::kInternal,
             "xla interpreter: argument {} is donated and passed a second time", donated);
      host_array(*arguments[donated]).consume();
    }
    const std::vector<CellsPtr> results = Frame(program_).run(main, plan_, std::move(cells));
    arrays.clear();
    for (size_t i = 0; i < results.size(); ++i)
      arrays.push_back(std::make_shared<HostArray>(
          std::make_shared<const Type>(program_.types[main.results[i]]), results[i]));
  }

 private:
  Program program_;
  BlockPlan plan_;
};

class Interpreter final : public Executor {
 public:
  bool on_host() const override { return true; }
  std::string description() const override { return "xla, interpreter, CPU"; }

  ArrayPtr upload_as(const TypePtr& type, std::span<const std::byte> bytes) override {
    check_size("upload", *type, bytes.size());
    auto cells = std::make_shared<Cells>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), cells->data());
    return std::make_shared<HostArray>(type, std::move(cells));
  }

  void download(Array& array, std::span<std::byte> bytes) override {
    check_size("download", array.type(), bytes.size());
    const CellsPtr cells = host_array(array).cells();
    std::copy(cells->data(), cells->data() + cells->bytes(), bytes.begin());
  }

  std::unique_ptr<Executable> compile(const Program& program) override {
    if (const std::string wrong = verify(program); !wrong.empty())
      fail(ErrorCode::kInternal, "xla interpreter: {}", wrong);
    ++compiled_;
    return std::make_unique<InterpretedProgram>(program);
  }

  int64_t compiled() const override { return compiled_; }
  int64_t from_cache() const override { return 0; }

 private:
  static void check_size(std::string_view what, const Type& type, size_t got) {
    if (type.bytes() != got)
      fail(ErrorCode::kInternal, "xla interpreter: {} of {}: expected {} bytes, got {}", what,
           type_text(type), type.bytes(), got);
  }

  int64_t compiled_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_interpreter() {
  return std::make_unique<Interpreter>();
}

}  // namespace adder::xla
