// How many threads the drop-in operations use.
#include <pybind11/pybind11.h>

#include "bindings.h"
#include "ops/runtime.h"

namespace adder::python {

void bind_threads(pybind11::module_& module) {
  namespace py = pybind11;
  module.def("set_num_threads", &ops::set_num_threads, py::arg("n"),
             py::call_guard<py::gil_scoped_release>());
  module.def("get_num_threads", &ops::get_num_threads);
}

}  // namespace adder::python
