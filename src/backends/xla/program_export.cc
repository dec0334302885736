#include "backends/xla/program_export.h"

#include <algorithm>

#include "backends/xla/decode_loop.h"
#include "backends/xla/decode_program.h"
#include "backends/xla/lower.h"
#include "core/error.h"

namespace adder::xla {
namespace {

std::string role_name(Recorder::Role role) {
  using Role = Recorder::Role;
  switch (role) {
    case Role::kIds:
      return "ids";
    case Role::kRows:
      return "rows";
    case Role::kSlots:
      return "slots";
    case Role::kValid:
      return "valid";
    default:
      break;
  }
  fail(ErrorCode::kInternal, "xla: export: a step with an argument for sampling");
}

// Puts together what is known of a program's arguments and results, which are named in order.
class Description {
 public:
  Description(Recorder& recorder, const Program& program) : recorder_(recorder), p_(program) {
    out_.text = stablehlo_text(program);
  }

  void argument(std::string name, uintptr_t address = 0) {
    add(out_.arguments, p_.main.arguments, std::move(name), address);
  }
  void result(std::string name, uintptr_t address = 0) {
    add(out_.results, p_.main.results, std::move(name), address);
  }

  // Those of a tape from number `first` on, and the states behind the results that are there.
  void step(const Recorder::Capture& step, size_t first) {
    for (size_t i = first; i < step.arguments.size(); ++i) {
      const auto state =
          std::ranges::find(step.states, static_cast<int32_t>(i), &Recorder::State::argument);
      if (state != step.states.end()) {
        argument({}, address(*state));
        continue;
      }
      const Array& array = *step.arguments[i];
      if (const auto role = recorder_.role_of(array)) {
        argument(role_name(*role));
      } else if (const auto where = recorder_.memory().address_of(array)) {
        argument({}, *where);
      } else {
        fail(ErrorCode::kInternal, "xla: export: argument {} comes from nowhere", i);
      }
    }
    for (const Recorder::State& state : step.states) result({}, address(state));
  }

  ExportedProgram finish() {
    if (out_.arguments.size() != p_.main.arguments.size() ||
        out_.results.size() != p_.main.results.size())
      fail(ErrorCode::kInternal, "xla: export: expected {} arguments and {} results, got {} and {}",
           p_.main.arguments.size(), p_.main.results.size(), out_.arguments.size(),
           out_.results.size());
    for (size_t i = 0; i < p_.donated.size(); ++i)
      if (p_.donated[i] >= 0)
        out_.arguments[static_cast<size_t>(p_.donated[i])].donated = static_cast<int32_t>(i);
    return std::move(out_);
  }

 private:
  static uintptr_t address(const Recorder::State& state) {
    return state.base +
           static_cast<uintptr_t>(state.view.offset) * element_bytes(state.view.element);
  }

  void add(std::vector<ProgramValue>& to, const std::vector<Value>& values, std::string name,
           uintptr_t address) {
    if (to.size() >= values.size())
      fail(ErrorCode::kInternal, "xla: export: expected {} values, got more", values.size());
    const Type& type = p_.types[values[to.size()]];
    to.push_back({address, std::move(name), std::string(element_name(type.element)), type.shape});
  }

  Recorder& recorder_;
  const Program& p_;
  ExportedProgram out_;
};

}  // namespace

ExportedProgram export_step(XlaBackend& backend, const std::function<Tensor()>& step) {
  Recorder& recorder = backend.recorder();
  recorder.begin_capture({});
  Recorder::Capture capture;
  Ref logits = kNoRef;
  try {
    logits = recorder.load(step());
    capture = recorder.end_capture();
  } catch (...) {
    recorder.drop_capture();
    throw;
  }
  std::vector<Ref> outputs = {logits};
  std::vector<int32_t> donated = {-1};
  for (const Recorder::State& state : capture.states) {
    outputs.push_back(state.after);
    donated.push_back(state.argument);
  }
  const Program program = lower_program(capture.tape.words(), outputs, donated);
  Description description(recorder, program);
  description.result("logits");
  description.step(capture, 0);
  return description.finish();
}

ExportedProgram export_decode_loop(XlaBackend& backend, int64_t rows, int64_t vocab_limit,
                                   int64_t stop_ids, bool greedy, const DecodeStep& step) {
  const CapturedStep captured = capture_step(backend, rows, vocab_limit, step);
  DecodeShape shape;
  shape.rows = rows;
  shape.steps = kDecodeSteps;
  shape.vocab_limit = vocab_limit;
  shape.stop_ids = std::max<int64_t>(stop_ids, 1);
  shape.draws = !greedy;
  const Program program = decode_program(shape, captured.step, captured.logits);
  Description description(backend.recorder(), program);
  for (const char* name : {"steps", "token", "slot", "remaining", "index", "stop"})
    description.argument(name);
  if (shape.draws)
    for (const char* name : {"temperature", "min_p", "top_k", "top_p", "seed"})
      description.argument(name);
  for (const char* name : {"token", "slot", "remaining", "index", "chosen"})
    description.result(name);
  description.step(captured.step, 2);
  return description.finish();
}

}  // namespace adder::xla
