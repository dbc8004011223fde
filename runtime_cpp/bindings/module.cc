// Assembles geomx._core from one init function per topic.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void init_core(nb::module_& m);
void init_codecs(nb::module_& m);
void init_kernels(nb::module_& m);
void init_device(nb::module_& m);
void init_net(nb::module_& m);
void init_fabric(nb::module_& m);
void init_fabric_model(nb::module_& m);
void init_fabric_worker(nb::module_& m);
void init_passes(nb::module_& m);
void init_emulation(nb::module_& m);
void init_python_parts(nb::module_& m);
void init_python_policies(nb::module_& m);
void init_python_rounds(nb::module_& m);
void init_python_slicer(nb::module_& m);
void init_library(nb::module_& m);
void init_program_end(nb::module_& m);
__attribute__((weak)) void init_journal(nb::module_& m);
__attribute__((weak)) void init_states(nb::module_& m);
__attribute__((weak)) void init_runtime(nb::module_& m);
__attribute__((weak)) void init_engine_queue(nb::module_& m);
__attribute__((weak)) void init_mxnet_engine(nb::module_& m);

NB_MODULE(_core, m) {
  m.doc() = "The compiled core of geomx: protocol, WAN model, live driver and native plugin parts.";
  init_core(m);
  init_codecs(m);
  init_kernels(m);
  init_device(m);
  init_net(m);
  init_passes(m);
  init_fabric(m);
  init_fabric_model(m);
  init_fabric_worker(m);
  init_emulation(m);
  init_python_parts(m);
  init_python_policies(m);
  init_python_rounds(m);
  init_python_slicer(m);
  init_library(m);
  init_program_end(m);
  if (init_journal) init_journal(m);
  if (init_states) init_states(m);
  if (init_runtime) init_runtime(m);
  if (init_engine_queue) init_engine_queue(m);
  if (init_mxnet_engine) init_mxnet_engine(m);
}
