// A loaded model: adder.load() and what it gives.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings.h"
#include "engine/engine.h"
#include "engine/generator.h"

namespace adder::python {
namespace {

namespace py = pybind11;

// One engine, which one thread at a time may drive: methods let go of the GIL, then take the lock.
class Model {
 public:
  Model(const std::string& path, const std::string& device, int threads, bool pin) {
    EngineOptions options;
    options.device = device;
    options.threads = threads;
    options.pin = pin;
    options.block = 0;
    engine_ = Engine::load(path, options);
  }

  std::string description() const { return engine_->backend().description(); }

  std::string generate(const std::string& prompt, int64_t max_tokens, SamplingOptions sampling) {
    std::scoped_lock lock(mutex_);
    GenerationRequest request;
    EncodeOptions encode;
    encode.add_bos = true;
    request.prompt = engine_->tokenizer().encode(prompt, encode);
    request.max_tokens = max_tokens;
    request.sampling = sampling;
    return adder::generate(*engine_, request).text;
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

void bind_model(py::module_& module) {
  using release = py::call_guard<py::gil_scoped_release>;
  py::class_<SamplingOptions>(module, "SamplingOptions")
      .def(py::init([](float temperature, int32_t top_k, float top_p, uint64_t seed) {
             SamplingOptions options;
             options.temperature = temperature;
             options.top_k = top_k;
             options.top_p = top_p;
             options.seed = seed;
             options.validate();
             return options;
           }),
           py::kw_only(), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"),
           py::arg("seed"));
  py::class_<Model>(module, "Model")
      .def(py::init<const std::string&, const std::string&, int, bool>(), release())
      .def_property_readonly("description", &Model::description)
      .def("generate", &Model::generate, release());
}

}  // namespace adder::python
