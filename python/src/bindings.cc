// One file per group of names, put together here.
#include "bindings.h"

namespace adder::python {

void bind_all(pybind11::module_& module) {
  module.doc() = "Adder's engine; use it through the package 'adder'.";
  bind_errors(module);
  bind_model(module);
  bind_device_array(module);
  bind_conv_ops(module);
  bind_fused_ops(module);
  bind_norm_ops(module);
  bind_scan_ops(module);
  bind_threads(module);
  bind_tokenizer(module);
  bind_request(module);
  bind_state(module);
  bind_sequence(module);
  bind_scoring(module);
}

}  // namespace adder::python
