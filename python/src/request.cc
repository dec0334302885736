// What a generation is asked for. The Python side has checked the types and fills the fields in.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "model.h"

namespace adder::python {
namespace {

namespace py = pybind11;

// Request::field as a property, through the struct that it is in.
template <typename Owner, typename T>
void field(py::class_<Request>& c, const char* name, Owner Request::*owner, T Owner::*member) {
  c.def_property(
      name, [owner, member](const Request& r) { return r.*owner.*member; },
      [owner, member](Request& r, T value) { r.*owner.*member = std::move(value); });
}

template <typename T>
void sampling(py::class_<Request>& c, const char* name, T SamplingOptions::*member) {
  c.def_property(
      name, [member](const Request& r) { return r.generation.sampling.*member; },
      [member](Request& r, T value) { r.generation.sampling.*member = value; });
}

}  // namespace

void bind_request(py::module_& module) {
  py::class_<Request> c(module, "Request");
  c.def(py::init());
  field(c, "prompt", &Request::generation, &GenerationRequest::prompt);
  field(c, "max_tokens", &Request::generation, &GenerationRequest::max_tokens);
  field(c, "stop", &Request::generation, &GenerationRequest::stop);
  field(c, "stop_tokens", &Request::generation, &GenerationRequest::stop_tokens);
  field(c, "ignore_eos", &Request::generation, &GenerationRequest::ignore_eos);
  field(c, "want_logprobs", &Request::generation, &GenerationRequest::want_logprobs);
  field(c, "top_logprobs", &Request::generation, &GenerationRequest::top_logprobs);
  sampling(c, "temperature", &SamplingOptions::temperature);
  sampling(c, "top_k", &SamplingOptions::top_k);
  sampling(c, "top_p", &SamplingOptions::top_p);
  sampling(c, "min_p", &SamplingOptions::min_p);
  sampling(c, "repeat_penalty", &SamplingOptions::repeat_penalty);
  sampling(c, "repeat_last_n", &SamplingOptions::repeat_last_n);
  sampling(c, "seed", &SamplingOptions::seed);
  field(c, "logit_bias", &Request::penalties, &TokenPenalties::bias);
  field(c, "presence_penalty", &Request::penalties, &TokenPenalties::presence);
  field(c, "frequency_penalty", &Request::penalties, &TokenPenalties::frequency);
  c.def_readwrite("grammar", &Request::grammar);
  c.def_readwrite("json_schema", &Request::json_schema);
  c.def_readwrite("keep_state", &Request::keep_state);
}

}  // namespace adder::python
