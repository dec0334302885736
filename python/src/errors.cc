// adder::Error as Python's exceptions.
#include "core/error.h"

#include <pybind11/pybind11.h>

#include <string_view>

#include "bindings.h"

namespace adder::python {
namespace {

PyObject* exception_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadInput:
    case ErrorCode::kConflict:
      return PyExc_ValueError;
    case ErrorCode::kIo:
      return PyExc_OSError;
    case ErrorCode::kUnsupported:
      return PyExc_NotImplementedError;
    case ErrorCode::kNotFound:
      return PyExc_KeyError;
    case ErrorCode::kTimeout:
      return PyExc_TimeoutError;
    case ErrorCode::kBusy:
    case ErrorCode::kInternal:
      return PyExc_RuntimeError;
  }
  return PyExc_RuntimeError;
}

}  // namespace

void bind_errors(pybind11::module_& /*module*/) {
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the type that pybind11 asks for
  pybind11::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& e) {
      // Names of files may be any bytes.
      const std::string_view text = e.what();
      PyObject* message = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                               "backslashreplace");
      if (message == nullptr) return;
      PyErr_SetObject(exception_of(e.code()), message);
      Py_DECREF(message);
    }
  });
}

}  // namespace adder::python
