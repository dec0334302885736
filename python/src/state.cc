// Conversations that are parked on the host.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "core/error.h"
#include "engine/state_file.h"
#include "model.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using Parked = std::shared_ptr<const ParkedState>;

const Parked& parked_of(const State& state) {
  ADDER_CHECK(state.history.state() != nullptr, "state: nothing has been processed yet");
  return state.history.state();
}

// A view of `data`, which belongs to the state and stays as long as the view does.
template <typename T>
py::array view(const Parked& parked, const T* data, std::vector<py::ssize_t> shape,
               std::vector<py::ssize_t> strides) {
  auto keep = std::make_unique<Parked>(parked);
  const py::capsule owner(keep.get(), [](void* p) { delete static_cast<Parked*>(p); });
  static_cast<void>(keep.release());  // the capsule's
  py::array_t<T> array(std::move(shape), std::move(strides), data, owner);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

struct LayerSizes {
  py::ssize_t conv_rows, channels, conv, ssm;  // in floats
};

LayerSizes layer_sizes(const ModelConfig& c) {
  LayerSizes s{};
  s.conv_rows = c.d_conv - 1;
  s.channels = c.conv_channels();
  s.conv = s.conv_rows * s.channels;
  s.ssm = c.d_inner * c.d_state;
  return s;
}

const float* layer_data(const State& state, int64_t layer) {
  const ModelConfig& c = state.model->engine().config();
  ADDER_CHECK(layer >= 0 && layer < c.n_layer, "layer: expected 0 to {}, got {}", c.n_layer - 1,
              layer);
  const LayerSizes s = layer_sizes(c);
  const auto* values = reinterpret_cast<const float*>(parked_of(state)->state.data());
  return values + layer * (s.conv + s.ssm);
}

// (conv_channels, d_conv - 1), oldest input first; in memory the inputs lie one after another.
py::array conv_state(const State& state, int64_t layer) {
  const LayerSizes s = layer_sizes(state.model->engine().config());
  return view(parked_of(state), layer_data(state, layer), {s.channels, s.conv_rows},
              {4, 4 * s.channels});
}

// (d_inner, d_state) for Mamba-1, where the states of a channel lie d_inner apart, or
// (n_heads, headdim, d_state) for Mamba-2.
py::array ssm_state(const State& state, int64_t layer) {
  const ModelConfig& c = state.model->engine().config();
  const float* data = layer_data(state, layer) + layer_sizes(c).conv;
  if (c.mixer == MixerKind::kMamba1) {
    return view(parked_of(state), data, {c.d_inner, c.d_state}, {4, 4 * c.d_inner});
  }
  return view(parked_of(state), data, {c.n_heads, c.headdim, c.d_state},
              {4 * c.headdim * c.d_state, 4 * c.d_state, 4});
}

py::array tokens_of(const State& state) {
  const Parked& parked = state.history.state();
  if (!parked) return py::array_t<int32_t>(0);
  return view(parked, parked->tokens.data(), {static_cast<py::ssize_t>(parked->tokens.size())},
              {4});
}

py::object logits_of(const State& state) {
  const Parked& parked = state.history.state();
  if (!parked || parked->logits.empty()) return py::none();
  return view(parked, parked->logits.data(), {static_cast<py::ssize_t>(parked->logits.size())},
              {4});
}

std::vector<std::pair<int64_t, bool>> stretches_of(const State& state) {
  std::vector<std::pair<int64_t, bool>> list;
  for (const Stretch& s : state.history.stretches()) list.emplace_back(s.tokens, s.generated);
  return list;
}

// cancel: for the time until the engine is free, here and below; a file is written and read whole.
void save(const State& state, const std::string& path, const CancelPtr& cancel) {
  parked_of(state);
  state.model->shared()->run(
      [&](Engine& engine, const auto&) { save_parked(engine, *state.history.state(), path); },
      Interrupts(cancel));
}

std::string image(const State& state) {
  parked_of(state);
  std::string result;
  state.model->shared()->run(
      [&](Engine& engine, const auto&) {
        const std::vector<std::byte> bytes = parked_image(engine, *state.history.state());
        result.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      },
      Interrupts());
  return result;
}

// In which way its tokens came in is not in the file, so it cannot be repeated.
State load(const std::shared_ptr<Model>& model, const std::string& path, const CancelPtr& cancel) {
  ParkedState parked;
  model->shared()->run([&](Engine& engine, const auto&) { parked = load_parked(engine, path); },
                       Interrupts(cancel));
  return {model, ConversationHistory(std::make_shared<const ParkedState>(std::move(parked)))};
}

// image: as image() made it. tokens, stretches: empty where not all of the tokens are known.
State restore(const std::shared_ptr<Model>& model, std::string_view image,
              std::vector<int32_t> tokens, const std::vector<std::pair<int64_t, bool>>& stretches,
              const CancelPtr& cancel) {
  ParkedState parked;
  model->shared()->run(
      [&](Engine& engine, const auto&) {
        parked = parse_parked(engine, std::as_bytes(std::span(image)), "state");
      },
      Interrupts(cancel));
  if (stretches.empty()) {
    return {model, ConversationHistory(std::make_shared<const ParkedState>(std::move(parked)))};
  }
  int64_t sum = 0;
  std::vector<Stretch> list;
  for (const auto& [length, generated] : stretches) {
    ADDER_CHECK(length >= 1 && length <= parked.length() - sum,
                "state: damaged: its stretches do not sum to {} tokens", parked.length());
    sum += length;
    list.push_back({length, generated});
  }
  ADDER_CHECK(sum == parked.length() && static_cast<int64_t>(tokens.size()) == sum &&
                  hash_tokens(tokens) == parked.token_hash,
              "state: damaged: its tokens are not those of its state");
  parked.tokens = std::move(tokens);
  parked.forgotten = 0;
  return {model, ConversationHistory(std::make_shared<const ParkedState>(std::move(parked)),
                                     std::move(list))};
}

State roll_back(const State& state, int64_t tokens, const CancelPtr& cancel) {
  return {state.model, SharedEngine::roll_back(state.model->shared(), state.history, tokens,
                                               Interrupts(cancel))};
}

}  // namespace

void bind_state(py::module_& module) {
  using release = py::call_guard<py::gil_scoped_release>;
  py::class_<State>(module, "State")
      .def(py::init([](std::shared_ptr<Model> model) {
             return State{std::move(model), {}};
           }),
           py::arg("model"))
      .def_property_readonly("model", [](const State& s) { return s.model; })
      .def_property_readonly("length", [](const State& s) { return s.history.length(); })
      .def_property_readonly("known", [](const State& s) { return s.history.known(); })
      .def_property_readonly("nbytes", [](const State& s) { return s.history.bytes(); })
      .def_property_readonly("stretches", &stretches_of)
      .def_property_readonly("tokens", &tokens_of)
      .def_property_readonly("logits", &logits_of)
      .def("conv", &conv_state, py::arg("layer"))
      .def("ssm", &ssm_state, py::arg("layer"))
      .def("save", &save, py::arg("path"), py::arg("cancel") = nullptr, release())
      .def("image",
           [](const State& s) {
             std::string bytes;
             {
               const py::gil_scoped_release no_gil;
               bytes = image(s);
             }
             return py::bytes(bytes);
           })
      .def("roll_back", &roll_back, py::arg("tokens"), py::arg("cancel") = nullptr, release());
  py::class_<Model, std::shared_ptr<Model>> model(module.attr("Model"));
  model.def("load_state", &load, py::arg("path"), py::arg("cancel") = nullptr, release());
  model.def(
      "restore_state",
      [](const std::shared_ptr<Model>& m, const py::bytes& bytes, std::vector<int32_t> tokens,
         const std::vector<std::pair<int64_t, bool>>& stretches, const CancelPtr& cancel) {
        const std::string_view view = bytes;
        const py::gil_scoped_release no_gil;
        return restore(m, view, std::move(tokens), stretches, cancel);
      },
      py::arg("image"), py::arg("tokens"), py::arg("stretches"), py::arg("cancel") = nullptr);
}

}  // namespace adder::python
