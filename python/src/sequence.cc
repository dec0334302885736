// Requests on their way: started, advanced, finished.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <mutex>

#include "bindings.h"
#include "core/error.h"
#include "model.h"

namespace adder::python {
namespace {

namespace py = pybind11;

std::shared_ptr<LogitEditor> make_editor(Model& model, const Request& request) {
  std::vector<std::unique_ptr<LogitEditor>> editors;
  if (request.penalties.any()) editors.push_back(make_penalty_editor(request.penalties));
  const auto constrain = [&](GrammarMatcher matcher) {
    editors.push_back(make_grammar_editor(std::move(matcher), model.grammars().eos_ids()));
  };
  if (!request.grammar.empty()) constrain(model.grammars().gbnf(request.grammar));
  if (!request.json_schema.empty()) constrain(model.grammars().json_schema(request.json_schema));
  return chain_editors(std::move(editors));
}

std::unique_ptr<Running> start(const std::shared_ptr<Model>& model, const Request& request,
                               const State* state) {
  SharedRequest shared;
  shared.generation = request.generation;
  shared.generation.editor = make_editor(*model, request);
  shared.keep_state = request.keep_state;
  if (state != nullptr) shared.from = state->history;
  auto running = std::make_unique<Running>();
  running->model = model;
  running->sequence = std::make_unique<SharedSequence>(model->shared(), std::move(shared));
  return running;
}

// Steps until it is done, has text to show, or `seconds` are over.
void advance(Running& running, double seconds, bool until_text,
             const std::shared_ptr<Cancel>& cancel, std::string& text) {
  const std::unique_lock reading(running.reading, std::try_to_lock);
  if (!reading) fail(ErrorCode::kBusy, "stream: another thread is reading it");
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  Interrupts poll(cancel);
  SharedSequence* const sequence = running.sequence.get();
  running.model->shared();  // throws in a forked child
  while (!sequence->done()) {
    running.model->shared()->advance(std::span(&sequence, 1));
    poll();
    text += sequence->take_text();
    if ((until_text && !text.empty()) || std::chrono::steady_clock::now() >= end) break;
  }
  text += sequence->take_text();
  if (sequence->failed()) sequence->result();  // throws
}

void finish(const std::vector<Running*>& list, const std::shared_ptr<Cancel>& cancel) {
  if (list.empty()) return;
  std::vector<SharedSequence*> sequences;
  sequences.reserve(list.size());
  for (Running* running : list) sequences.push_back(running->sequence.get());
  list.front()->model->shared()->finish(sequences, Interrupts(cancel));
  for (SharedSequence* sequence : sequences) {
    if (sequence->failed()) sequence->result();  // throws
  }
}

py::tuple logprob(const TokenLogprobs& p) {
  py::list top;
  for (const TokenLogprob& t : p.top) top.append(py::make_tuple(t.token, t.logprob));
  return py::make_tuple(p.chosen.token, p.chosen.logprob, top);
}

py::dict result_of(const Running& running) {
  const GenerationResult& r = running.sequence->result();
  py::list logprobs;
  for (const TokenLogprobs& p : r.logprobs) logprobs.append(logprob(p));
  py::dict d;
  d["text"] = r.text;
  d["tokens"] = r.tokens;
  d["finish_reason"] = std::string(finish_reason_name(r.finish));
  d["logprobs"] = logprobs;
  d["prompt_tokens"] = r.prompt_tokens;
  d["cached_tokens"] = r.cached_tokens;
  d["prefill_s"] = r.prefill_s;
  d["decode_s"] = r.decode_s;
  return d;
}

}  // namespace

void bind_sequence(py::module_& module) {
  using release = py::call_guard<py::gil_scoped_release>;
  py::class_<Model, std::shared_ptr<Model>> model(module.attr("Model"));
  model.def("start", &start, py::arg("request"), py::arg("state").none(true), release());
  py::class_<Running>(module, "Sequence")
      .def(
          "advance",
          [](Running& running, double seconds, bool until_text,
             const std::shared_ptr<Cancel>& cancel) {
            std::string text;
            {
              const py::gil_scoped_release no_gil;
              advance(running, seconds, until_text, cancel, text);
            }
            return text;
          },
          py::arg("seconds"), py::arg("until_text"), py::arg("cancel").none(true))
      .def("cancel", [](Running& running) { running.sequence->cancel(); })
      .def_property_readonly("done", [](const Running& r) { return r.sequence->done(); })
      .def("result", &result_of)
      .def("state", [](const Running& r) {
        return std::make_unique<State>(State{r.model, r.sequence->history()});
      });
  module.def("finish", &finish, py::arg("sequences"), py::arg("cancel").none(true), release());
}

}  // namespace adder::python
