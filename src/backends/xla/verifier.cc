// Checks programs on its own terms: it shares no code with the builder, whose mistakes it is for.
#include <string>
#include <vector>

#include "backends/xla/verifier_ops.h"

namespace adder::xla {
namespace {

class ProgramVerifier {
 public:
  explicit ProgramVerifier(const Program& program)
      : program_(program), seen_(program.types.size()), visible_(program.types.size()) {}

  void check() {
    for (size_t v = 0; v < program_.types.size(); ++v)
      for (const int64_t extent : program_.types[v].shape)
        require(extent >= 0, "%{} has a negative extent", v);
    block(program_.main);
    donations();
  }

 private:
  void define(Value v) {
    require(v < seen_.size(), "%{} is no value of the program", v);
    require(!seen_[v], "%{} is defined twice", v);
    seen_[v] = visible_[v] = true;
  }

  void use(Value v) const {
    require(v < seen_.size(), "%{} is no value of the program", v);
    require(visible_[v], "%{} is used {}", v,
            seen_[v] ? "outside of the region that defines it" : "before it is defined");
  }

  // Values that a block defines are unknown after it.
  void block(const Block& block) {
    for (const Value v : block.arguments) define(v);
    for (const Op& op : block.ops) operation(op);
    for (const Value v : block.results) use(v);
    for (const Value v : block.arguments) visible_[v] = false;
    for (const Op& op : block.ops)
      for (const Value v : op.results) visible_[v] = false;
  }

  void operation(const Op& op) {
    const auto name = [&] {
      return op.results.empty() ? std::string(opcode_name(op.code))
                                : fmt::format("%{} = {}", op.results[0], opcode_name(op.code));
    };
    const auto named = [&](const auto& step) {
      try {
        step();
      } catch (const Wrong& wrong) {
        throw Wrong{name() + ": " + wrong.text};
      }
    };
    named([&] {
      for (const Value v : op.operands) use(v);
    });
    for (const Block& region : op.regions) block(region);
    named([&] {
      for (const Value v : op.results) define(v);
      verify_op(program_, op);
    });
  }

  void donations() const {
    const Block& main = program_.main;
    require(program_.donated.size() == main.results.size(),
            "expected {} entries of donated, one for each result, got {}", main.results.size(),
            program_.donated.size());
    std::vector<bool> taken(main.arguments.size());
    for (size_t i = 0; i < main.results.size(); ++i) {
      const int32_t argument = program_.donated[i];
      if (argument == -1) continue;
      require(argument >= 0 && argument < std::ssize(main.arguments),
              "result {}: there is no argument {} to take over", i, argument);
      require(!taken[argument], "argument {} is donated twice", argument);
      taken[argument] = true;
      const Type& expected = program_.types[main.arguments[argument]];
      const Type& got = program_.types[main.results[i]];
      require(expected == got, "result {} on argument {}: expected {}, got {}", i, argument,
              type_text(expected), type_text(got));
    }
  }

  const Program& program_;
  std::vector<bool> seen_, visible_;
};

}  // namespace

std::string verify(const Program& program) {
  try {
    ProgramVerifier(program).check();
  } catch (const Wrong& wrong) {
    return wrong.text;
  }
  return "";
}

}  // namespace adder::xla
