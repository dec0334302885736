// What a model makes of a given text: log-likelihoods, logits, embeddings.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "core/error.h"
#include "engine/continuation_scoring.h"
#include "engine/embedding.h"
#include "engine/scoring.h"
#include "model.h"

namespace adder::python {
namespace {

namespace py = pybind11;

// The array takes the values over, without a copy.
template <typename T>
py::array_t<T> array_of(std::vector<T>&& values, std::vector<py::ssize_t> shape) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const py::capsule owner(owned.get(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  static_cast<void>(owned.release());  // the capsule's
  return py::array_t<T>(std::move(shape), data, owner);
}

// (nll, best), both of one entry less than tokens.
py::tuple next_token(Model& model, const std::vector<int32_t>& tokens, const CancelPtr& cancel) {
  std::vector<double> nll;
  std::vector<int32_t> best;
  {
    const py::gil_scoped_release no_gil;
    model.shared()->run(
        [&](Engine& engine, const auto& pause) {
          nll = next_token_nll(
              engine, tokens, [&](int64_t) { pause(); }, &best);
        },
        Interrupts(cancel));
  }
  const auto count = static_cast<py::ssize_t>(nll.size());
  return py::make_tuple(array_of(std::move(nll), {count}), array_of(std::move(best), {count}));
}

// [(nll, best)], of the tokens of each text from its context on.
py::list continuations(Model& model, std::vector<std::vector<int32_t>> texts,
                       const std::vector<int64_t>& contexts, const CancelPtr& cancel) {
  ADDER_CHECK(texts.size() == contexts.size(), "contexts: expected {}, one per text, got {}",
              texts.size(), contexts.size());
  std::vector<ContinuationScore> scores;
  {
    const py::gil_scoped_release no_gil;
    std::vector<ContinuationRequest> requests;
    requests.reserve(texts.size());
    for (size_t i = 0; i < texts.size(); ++i)
      requests.push_back({std::move(texts[i]), contexts[i]});
    model.shared()->run(
        [&](Engine& engine, const auto& pause) {
          scores = score_continuations(engine, requests, pause);
        },
        Interrupts(cancel));
  }
  py::list results;
  for (ContinuationScore& score : scores) {
    const auto count = static_cast<py::ssize_t>(score.nll.size());
    results.append(py::make_tuple(array_of(std::move(score.nll), {count}),
                                  array_of(std::move(score.best), {count})));
  }
  return results;
}

py::array_t<float> logits(Model& model, const std::vector<int32_t>& tokens, int64_t last,
                          const CancelPtr& cancel) {
  std::vector<float> values;
  {
    const py::gil_scoped_release no_gil;
    model.shared()->run(
        [&](Engine& engine, const auto& pause) {
          values = last_logits(engine, tokens, last, [&](int64_t) { pause(); });
        },
        Interrupts(cancel));
  }
  return array_of(std::move(values), {last, model.engine().config().vocab_rows});
}

// (texts, d_model)
py::array_t<float> embed(Model& model, const std::vector<std::vector<int32_t>>& texts, bool mean,
                         const CancelPtr& cancel) {
  std::vector<float> values;
  {
    const py::gil_scoped_release no_gil;
    for (const auto& tokens : texts) {
      model.shared()->run(
          [&](Engine& engine, const auto& pause) {
            EmbeddingRun run(engine, tokens, mean ? Pooling::kMean : Pooling::kLast);
            while (!run.advance()) pause();
            const std::vector<float> one = run.result();
            values.insert(values.end(), one.begin(), one.end());
            pause();
          },
          Interrupts(cancel));
    }
  }
  return array_of(std::move(values),
                  {static_cast<py::ssize_t>(texts.size()), model.engine().config().d_model});
}

}  // namespace

void bind_scoring(py::module_& module) {
  py::class_<Model, std::shared_ptr<Model>> model(module.attr("Model"));
  model.def_property_readonly("start_id", [](const Model& m) { return text_start(m.engine()); });
  model.def("next_token", &next_token, py::arg("tokens"), py::arg("cancel").none(true));
  model.def("continuations", &continuations, py::arg("texts"), py::arg("contexts"),
            py::arg("cancel").none(true));
  model.def("logits", &logits, py::arg("tokens"), py::arg("last"), py::arg("cancel").none(true));
  model.def("embed", &embed, py::arg("texts"), py::arg("mean"), py::arg("cancel").none(true));
}

}  // namespace adder::python
