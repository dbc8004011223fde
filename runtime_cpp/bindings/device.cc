// Tensors of other frameworks, on any device: their DLPack description, and the DeviceStaging that
// copies their values.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings/release_queue.h"
#include "io/loop.h"
#include "io/device_staging.h"
#include "kernels/queue.h"
#include "kernels/timing.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using io::DeviceStaging;
using io::Width;
using HostVector = nb::ndarray<nb::numpy, float, nb::ndim<1>, nb::c_contig>;

Width WidthOf(const std::string& name) {
  if (name == "float32") return Width::kFloat32;
  if (name == "float16") return Width::kFloat16;
  if (name == "bfloat16") return Width::kBfloat16;
  throw nb::value_error(("a tensor of " + name + ": must be float32, float16 or bfloat16").c_str());
}

std::string NameOf(nb::dlpack::dtype type) {
  if (type.lanes != 1) return "vectors";
  if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bool)) return "bool";
  const char* const names[] = {"int", "uint", "float", "opaque", "bfloat", "complex"};
  return (type.code < 6 ? names[type.code] : "unknown") + std::to_string(type.bits);
}

// (device type, device number, address, shape, type, strides in bytes)
nb::tuple Describe(const nb::ndarray<>& tensor) {
  nb::list shape, strides;
  for (std::size_t d = 0; d < tensor.ndim(); ++d) {
    shape.append(tensor.shape(d));
    strides.append(tensor.stride(d) * static_cast<std::int64_t>(tensor.itemsize()));
  }
  return nb::make_tuple(tensor.device_type(), tensor.device_id(),
                        reinterpret_cast<std::uintptr_t>(tensor.data()), nb::tuple(shape),
                        NameOf(tensor.dtype()), nb::tuple(strides));
}

nb::dict TimeDevice(const std::string& device, std::uint64_t elements, std::uint64_t repeats) {
  kernels::Timings timings;
  {
    const nb::gil_scoped_release unlocked;
    timings = kernels::TimeQueue(*kernels::OpenQueue(device), elements, repeats);
  }
  nb::dict found;
  found["to_host"] = timings.to_host;
  found["to_device"] = timings.to_device;
  found["encode"] = timings.encode;
  found["update"] = timings.update;
  return found;
}

std::shared_ptr<DeviceStaging> MakeStage(const std::string& device, std::size_t most_kept) {
  return std::make_shared<DeviceStaging>([&] { return kernels::OpenQueue(device); }, most_kept);
}

void Fetch(DeviceStaging& stage, std::uintptr_t address, const std::string& type, const HostVector& out) {
  const io::DeviceTensor tensor{.address = address, .width = WidthOf(type), .elements = out.size()};
  const nb::gil_scoped_release unlocked;
  stage.Fetch(tensor, {out.data(), out.size()});
}

void Fill(DeviceStaging& stage, const HostVector& values, std::uintptr_t address, const std::string& type,
          nb::object owner, const io::Stream& consumer) {
  const io::DeviceTensor tensor{.address = address,
                          .width = WidthOf(type),
                          .elements = values.size(),
                          .owner = ReleaseQueue::Instance().Keep(std::move(owner))};
  const nb::gil_scoped_release unlocked;
  stage.Fill({values.data(), values.size()}, tensor, consumer);
}

void FillFrom(DeviceStaging& stage, io::Loop& loop, Key key, std::uintptr_t address,
              const std::string& type, std::uint64_t elements, nb::object owner,
              const io::Stream& consumer) {
  const io::DeviceTensor tensor{.address = address,
                          .width = WidthOf(type),
                          .elements = elements,
                          .owner = ReleaseQueue::Instance().Keep(std::move(owner))};
  const nb::gil_scoped_release unlocked;
  loop.Fill(key, stage, tensor, consumer);
}

std::shared_ptr<DeviceStaging::Value> Take(DeviceStaging& stage, std::uintptr_t address, const std::string& type,
                                   std::uint64_t elements, nb::object owner, bool copy,
                                   const io::Stream& producer) {
  const io::DeviceTensor tensor{.address = address,
                          .width = WidthOf(type),
                          .elements = elements,
                          .owner = ReleaseQueue::Instance().Keep(std::move(owner))};
  const nb::gil_scoped_release unlocked;
  return stage.Take(tensor, copy, producer);
}

using Term = std::tuple<std::shared_ptr<DeviceStaging>, std::uintptr_t, std::string, nb::object, io::Stream>;

std::shared_ptr<DeviceStaging::Value> TakeSum(DeviceStaging& stage, std::vector<Term> given,
                                      std::uint64_t elements) {
  if (given.empty()) throw nb::value_error("no tensors");
  std::vector<DeviceStaging::Term> terms;
  for (auto& [its_stage, address, type, owner, producer] : given) {
    terms.push_back({its_stage,
                     {.address = address,
                      .width = WidthOf(type),
                      .elements = elements,
                      .owner = ReleaseQueue::Instance().Keep(std::move(owner))},
                     producer});
  }
  const nb::gil_scoped_release unlocked;
  return stage.TakeSum(terms);
}

}  // namespace
}  // namespace geomx

void init_device(nb::module_& m) {
  using namespace geomx;

  m.def("devices", [] {
    std::vector<std::pair<std::string, std::string>> found;
    for (const kernels::DeviceInfo& device : kernels::Devices()) {
      found.emplace_back(device.name, device.description);
    }
    return found;
  }, "Return (name, description) of every device with kernels in this build, the processor first.");
  m.def("time_device", &TimeDevice, "device"_a, "elements"_a, "repeats"_a,
        "Return the seconds, by repeat, to copy `elements` float32 values \"to_host\" and \"to_device\",\n"
        "to cast them to half precision on the device (\"encode\"), and to apply an optimizer\n"
        "(\"update\"). ValueError if there is no such device.");
  m.def("describe_tensor", &Describe, "tensor"_a,
        "Return (device type, device number, address, shape, name of the type, strides in bytes) of a\n"
        "DLPack capsule, or of an object that supports DLPack.");
  nb::class_<DeviceStaging::Value>(m, "StagedValue", "A tensor's values for Loop.push_value.");
  nb::class_<DeviceStaging>(m, "DeviceStaging", R"(Copies tensors of one device to the store and back.

ValueError if there is no such device. Thread-safe. Pools of device memory and of pinned memory keep at
most `most_kept` bytes each. Tensors are contiguous, of float32, float16 or bfloat16; streams are handles
of CUDA.)")
      .def(nb::new_(&MakeStage), "device"_a, "most_kept"_a = std::size_t{256} << 20)
      .def_prop_ro("device", &DeviceStaging::device)
      .def_prop_ro("stream", &DeviceStaging::stream, "The stage's stream, for DLPack.")
      .def_prop_ro("kept", &DeviceStaging::pinned, "Bytes of pinned memory in the pool.")
      .def("after", &DeviceStaging::After, "producer"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Let later operations wait for the operations of stream `producer` so far.")
      .def("fetch", &Fetch, "address"_a, "type"_a, "out"_a.noconvert(),
           "Copy a tensor's values into a float32 vector of equal length.")
      .def("fill", &Fill, "values"_a.noconvert(), "address"_a, "type"_a, "owner"_a,
           "consumer"_a = nb::none(),
           "Copy float32 values into a tensor, which `owner` keeps alive. The stream `consumer` waits\n"
           "for the copy; without one, the caller waits.")
      .def("fill_from", &FillFrom, "loop"_a, "key"_a, "address"_a, "type"_a, "elements"_a, "owner"_a,
           "consumer"_a = nb::none(),
           "Copy a worker's last complete value into a tensor, as `fill`. Values of later rounds are\n"
           "copied encoded if the device can decode them.")
      .def("take", &Take, "address"_a, "type"_a, "elements"_a, "owner"_a, "copy"_a,
           "producer"_a = nb::none(),
           "Take the values of a tensor, which `owner` keeps alive. With `copy`, the tensor may be\n"
           "changed afterwards, by operations of stream `producer` or, without one, by any.")
      .def("take_sum", &TakeSum, "terms"_a, "elements"_a,
           "Take the sum of tensors, in the given order, which may be changed afterwards. Each is\n"
           "(stage of its device, address, type, owner, producer or None).");
}
