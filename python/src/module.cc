// The extension module adder._core: one file per group of names, put together here.
#include <pybind11/pybind11.h>

#include "bindings.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Adder's engine; use it through the package 'adder'.";
  adder::python::bind_errors(module);
  adder::python::bind_model(module);
  adder::python::bind_conv_ops(module);
  adder::python::bind_fused_ops(module);
  adder::python::bind_norm_ops(module);
  adder::python::bind_scan_ops(module);
  adder::python::bind_threads(module);
  adder::python::bind_tokenizer(module);
  adder::python::bind_request(module);
  adder::python::bind_state(module);
  adder::python::bind_sequence(module);
  adder::python::bind_scoring(module);
}
