// The extension module adder._core.
#include <pybind11/pybind11.h>

#include "bindings.h"

PYBIND11_MODULE(_core, module) {
  adder::python::bind_all(module);
}
