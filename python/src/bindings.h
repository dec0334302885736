// What each file of bindings adds to the module.
#pragma once

#include <pybind11/pybind11.h>

namespace adder::python {

void bind_all(pybind11::module_& module);

void bind_errors(pybind11::module_& module);
void bind_model(pybind11::module_& module);
void bind_device_array(pybind11::module_& module);
void bind_conv_ops(pybind11::module_& module);
void bind_fused_ops(pybind11::module_& module);
void bind_norm_ops(pybind11::module_& module);
void bind_scan_ops(pybind11::module_& module);
void bind_threads(pybind11::module_& module);
void bind_request(pybind11::module_& module);
void bind_scoring(pybind11::module_& module);
void bind_sequence(pybind11::module_& module);
void bind_state(pybind11::module_& module);
void bind_tokenizer(pybind11::module_& module);

}  // namespace adder::python
