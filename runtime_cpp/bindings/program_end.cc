// How the program ends, for what runs at its end: Python does not tell atexit callbacks of a SystemExit.
//
// Once no Python code is left that could catch a SystemExit, the interpreter reads its `code`, the status
// with which it then ends. So this remembers what is read of a SystemExit where no Python code runs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

namespace nb = nanobind;

namespace geomx {
namespace {

PyObject* plain_code = nullptr;  // Python's own descriptor of `code`
int exit_status = 0;
std::string exit_text;

// As the interpreter and then the operating system take it.
int StatusOf(PyObject* code) {
  if (code == Py_None) return 0;
  if (!PyLong_Check(code)) return 1;
  const long number = PyLong_AsLong(code);
  if (number == -1) PyErr_Clear();  // it may be too large
  return static_cast<int>(number & 0xff);
}

// What is no status is printed; empty if it is one, or has no text.
std::string TextOf(PyObject* code) {
  if (code == Py_None || PyLong_Check(code)) return {};
  const auto text = nb::steal(PyObject_Str(code));
  const char* letters = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  if (letters == nullptr) PyErr_Clear();
  return letters == nullptr ? std::string() : std::string(letters);
}

PyObject* Get(PyObject* self, void*) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(self));
  PyObject* code = Py_TYPE(plain_code)->tp_descr_get(plain_code, self, type);
  if (code == nullptr || PyEval_GetFrame() != nullptr) return code;
  exit_status = StatusOf(code);
  exit_text = TextOf(code);
  return code;
}

int Set(PyObject* self, PyObject* code, void*) {
  return Py_TYPE(plain_code)->tp_descr_set(plain_code, self, code);
}

void WatchExit() {
  if (plain_code != nullptr) return;
  static PyGetSetDef watched{"code", &Get, &Set, "exception code", nullptr};
  auto* type = reinterpret_cast<PyTypeObject*>(PyExc_SystemExit);
#if PY_VERSION_HEX >= 0x030C0000
  const auto names = nb::steal<nb::dict>(PyType_GetDict(type));
#else
  const auto names = nb::borrow<nb::dict>(type->tp_dict);
#endif
  plain_code = nb::object(names["code"]).release().ptr();
  names["code"] = nb::steal(PyDescr_NewGetSet(type, &watched));
  PyType_Modified(type);
}

}  // namespace
}  // namespace geomx

void init_program_end(nb::module_& m) {
  m.def("watch_exit", &geomx::WatchExit, "Let `exit_status` tell of the end of the program from now on.");
  m.def("exit_status", [] { return geomx::exit_status; },
        "Return the exit status of a program that ends by SystemExit, once it does; 0 before.");
  m.def("exit_text", [] { return geomx::exit_text; },
        "Return what such a program has given in place of a status, as text; empty: nothing.");
}
