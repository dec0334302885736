// A loaded model: adder.load() and what is known about it.
#include "model.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <new>

#include "bindings.h"
#include "core/error.h"
#include "engine/model_source.h"
#include "engine/state_budget.h"

namespace adder::python {
namespace {

namespace py = pybind11;

constexpr int32_t kUsualSlots = 8;

}  // namespace

Model::Model(const std::string& path, const LoadOptions& load) : process_(::getpid()) {
  ADDER_CHECK(load.slots >= 0, "slots: expected 0 or more, got {}", load.slots);
  auto checkpoint = std::make_shared<Checkpoint>(open_model(path));
  auto tokenizer = find_tokenizer(*checkpoint);
  EngineOptions options;
  options.device = load.device;
  options.threads = load.threads;
  options.pin = load.pin;
  options.block = load.block;
  options.slots = 1 + (load.slots > 0 ? load.slots : slots_that_fit(*checkpoint, kUsualSlots));
  options.logit_rows = 16;  // for scoring
  shared_ = std::make_shared<SharedEngine>(
      std::make_unique<Engine>(std::move(checkpoint), std::move(tokenizer), options));
  if (engine().has_tokenizer()) grammars_.emplace(engine());
}

Model::~Model() {
  if (forked()) static_cast<void>(new (std::nothrow) std::shared_ptr(std::move(shared_)));
}

bool Model::forked() const {
  return ::getpid() != process_;
}

const std::shared_ptr<SharedEngine>& Model::shared() const {
  if (forked()) {
    fail(
        ErrorCode::kBusy,
        "model: it was loaded in another process, and fork() leaves its threads behind: load it in "
        "the child, or start children with multiprocessing's 'spawn'");
  }
  return shared_;
}

const Tokenizer& Model::tokenizer() const {
  if (!engine().has_tokenizer()) {
    bad_input(
        "{}: expected a tokenizer.json or tokenizer.model beside the weights, or a GGUF file with "
        "a tokenizer, got none; give ids instead of text",
        engine().checkpoint().path());
  }
  return engine().tokenizer();
}

GrammarCache& Model::grammars() {
  tokenizer();
  return *grammars_;
}

std::string Model::fingerprint() {
  std::string result;
  shared()->run([&](Engine& engine, const auto&) { result = engine.fingerprint(); }, Interrupts());
  return result;
}

namespace {

py::dict config_of(const Model& model) {
  const ModelConfig& c = model.engine().config();
  py::dict d;
  d["family"] = c.family;
  d["n_layer"] = c.n_layer;
  d["d_model"] = c.d_model;
  d["d_inner"] = c.d_inner;
  d["d_state"] = c.d_state;
  d["d_conv"] = c.d_conv;
  if (c.mixer == MixerKind::kMamba1) {
    d["dt_rank"] = c.dt_rank;
  } else {
    d["n_heads"] = c.n_heads;
    d["headdim"] = c.headdim;
    d["n_groups"] = c.n_groups;
  }
  d["vocab_size"] = model.engine().vocab_limit();
  d["vocab_rows"] = c.vocab_rows;
  d["state_bytes"] = c.state_bytes();
  return d;
}

std::vector<int32_t> eos_ids(const Model& model) {
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < model.engine().config().vocab_rows; ++id) {
    if (model.engine().is_eos(static_cast<int32_t>(id))) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace

void bind_model(py::module_& module) {
  py::class_<Cancel, std::shared_ptr<Cancel>>(module, "Cancel")
      .def(py::init([] { return std::make_shared<Cancel>(false); }))
      .def("set", [](Cancel& cancel) { cancel.store(true); });
  module.def("available_devices", &available_devices);
  py::class_<Model, std::shared_ptr<Model>>(module, "Model")
      .def(py::init([](const std::string& path, const std::string& device, int threads, bool pin,
                       int64_t block, int32_t slots) {
             const py::gil_scoped_release release;
             return std::make_shared<Model>(path, LoadOptions{device, threads, pin, block, slots});
           }),
           py::arg("path"), py::arg("device"), py::arg("threads"), py::arg("pin"), py::arg("block"),
           py::arg("slots"))
      .def_property_readonly(
          "path",
          [](const Model& m) {
            const std::string& path = m.engine().checkpoint().path();
            return py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefaultAndSize(
                path.data(), static_cast<Py_ssize_t>(path.size())));
          })
      .def_property_readonly("description",
                             [](const Model& m) { return m.engine().backend().description(); })
      .def_property_readonly("config", &config_of)
      .def_property_readonly("eos_ids", &eos_ids)
      .def_property_readonly("bos_id", [](const Model& m) { return m.engine().config().bos_id; })
      .def_property_readonly("block", [](const Model& m) { return m.engine().block(); })
      .def_property_readonly("slots", [](const Model& m) { return m.shared()->slots(); })
      .def_property_readonly("has_tokenizer",
                             [](const Model& m) { return m.engine().has_tokenizer(); })
      .def("fingerprint", &Model::fingerprint, py::call_guard<py::gil_scoped_release>());
}

}  // namespace adder::python
