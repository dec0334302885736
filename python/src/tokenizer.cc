// The tokenizer of a model, and the texts of chats.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "core/error.h"
#include "engine/chat.h"
#include "model.h"

namespace adder::python {
namespace {

namespace py = pybind11;
using Messages = std::vector<std::pair<std::string, std::string>>;

int32_t check_id(const Tokenizer& tokenizer, int64_t id) {
  ADDER_CHECK(id >= 0 && id < tokenizer.size(), "id: expected 0 to {}, got {}",
              tokenizer.size() - 1, id);
  return static_cast<int32_t>(id);
}

std::vector<int32_t> encode(const Model& model, const std::string& text, bool parse_special,
                            bool add_bos) {
  EncodeOptions options;
  options.parse_special = parse_special;
  options.add_bos = add_bos;
  return model.tokenizer().encode(text, options);
}

std::string decode(const Model& model, const std::vector<int32_t>& ids, bool skip_special) {
  return model.tokenizer().decode(ids, skip_special);
}

std::vector<int32_t> chat_prompt(const Model& model, const Messages& messages,
                                 const std::string& name, bool continues) {
  const ChatTemplate chat = choose_chat_template(model.engine(), name);
  std::vector<ChatMessage> list;
  for (const auto& [role, content] : messages) list.push_back({role, content});
  return continues ? encode_chat_continuation(model.tokenizer(), chat, list)
                   : encode_chat(model.tokenizer(), chat, list);
}

py::dict chat_template(const Model& model, const std::string& name) {
  const ChatTemplate chat = choose_chat_template(model.engine(), name);
  GenerationRequest stops;
  add_chat_stops(model.tokenizer(), chat, stops);
  py::dict d;
  d["name"] = std::string(chat_template_name(chat));
  d["stop"] = stops.stop;
  d["stop_tokens"] = stops.stop_tokens;
  d["blank"] = answers_begin_with_blank(chat);
  return d;
}

}  // namespace

void bind_tokenizer(py::module_& module) {
  using release = py::call_guard<py::gil_scoped_release>;
  py::class_<Model, std::shared_ptr<Model>> model(module.attr("Model"));
  model.def("encode", &encode, py::arg("text"), py::arg("parse_special"), py::arg("add_bos"),
            release());
  model.def("decode", [](const Model& m, const std::vector<int32_t>& ids, bool skip_special) {
    return py::bytes(decode(m, ids, skip_special));
  });
  model.def("token_bytes", [](const Model& m, int64_t id) {
    return py::bytes(std::string(m.tokenizer().token_bytes(check_id(m.tokenizer(), id))));
  });
  model.def("is_special", [](const Model& m, int64_t id) {
    return m.tokenizer().is_special(check_id(m.tokenizer(), id));
  });
  model.def("token_to_id", [](const Model& m, const std::string& token) {
    return m.tokenizer().token_to_id(token);
  });
  model.def_property_readonly("tokenizer_size",
                              [](const Model& m) { return m.tokenizer().size(); });
  model.def_property_readonly("tokenizer_kind",
                              [](const Model& m) { return std::string(m.tokenizer().kind()); });
  model.def_property_readonly("tokenizer_bos",
                              [](const Model& m) { return m.tokenizer().bos_id(); });
  model.def_property_readonly("tokenizer_eos",
                              [](const Model& m) { return m.tokenizer().eos_id(); });
  model.def_property_readonly("tokenizer_wants_bos",
                              [](const Model& m) { return m.tokenizer().wants_bos(); });
  model.def("chat_prompt", &chat_prompt, py::arg("messages"), py::arg("template"),
            py::arg("continues"));
  model.def("chat_template", &chat_template, py::arg("name"));
}

}  // namespace adder::python
