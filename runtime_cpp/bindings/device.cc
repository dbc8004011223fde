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
  }, "(name, what it is) of every device that this build has kernels for, the processor first.");
  m.def("time_device", &TimeDevice, "device"_a, "elements"_a, "repeats"_a,
        "Seconds, by repeat, that `elements` float32 values take from a device \"to_host\", back\n"
        "\"to_device\", and there to be cast to half precision, \"encode\", and to take a step of an\n"
        "optimizer, \"update\". ValueError if there is no such device.");
  m.def("describe_tensor", &Describe, "tensor"_a,
        "Of a DLPack capsule, or an object that gives one: (device type, device number, address,\n"
        "shape, type's name, strides in bytes).");
  nb::class_<DeviceStaging::Value>(m, "StagedValue", "A tensor's values on their way, for Loop.push_value.");
  nb::class_<DeviceStaging>(m, "DeviceStaging", R"(Brings tensors of one device to the store and back.

ValueError if there is no such device. Thread-safe. Of memory of the device, and of pinned memory for
copies, at most `most_kept` bytes are kept between values. Tensors are contiguous, of float32, float16 or
bfloat16; streams are CUDA's, as numbers.)")
      .def(nb::new_(&MakeStage), "device"_a, "most_kept"_a = std::size_t{256} << 20)
      .def_prop_ro("device", &DeviceStaging::device)
      .def_prop_ro("stream", &DeviceStaging::stream, "The stream that waits for others, for DLPack.")
      .def_prop_ro("kept", &DeviceStaging::pinned, "Bytes of pinned memory that wait for the next copy.")
      .def("after", &DeviceStaging::After, "producer"_a, nb::call_guard<nb::gil_scoped_release>(),
           "What the stream `producer` has been given so far comes before what is asked for next.")
      .def("fetch", &Fetch, "address"_a, "type"_a, "out"_a.noconvert(),
           "Copy a tensor's values into a float32 vector as long as it.")
      .def("fill", &Fill, "values"_a.noconvert(), "address"_a, "type"_a, "owner"_a,
           "consumer"_a = nb::none(),
           "Copy float32 values into a tensor, which `owner` keeps alive. The stream `consumer` waits\n"
           "for it; without one the caller does.")
      .def("fill_from", &FillFrom, "loop"_a, "key"_a, "address"_a, "type"_a, "elements"_a, "owner"_a,
           "consumer"_a = nb::none(),
           "Likewise a worker's last complete value. Those of later rounds come to the device as they\n"
           "are on the wire, if it can decode them.")
      .def("take", &Take, "address"_a, "type"_a, "elements"_a, "owner"_a, "copy"_a,
           "producer"_a = nb::none(),
           "A tensor's values, which `owner` keeps alive. With `copy` the tensor may be changed\n"
           "afterwards, by the stream `producer` or, without one, in any way.")
      .def("take_sum", &TakeSum, "terms"_a, "elements"_a,
           "The sum of tensors, in their order, which may be changed afterwards likewise: each is\n"
           "(the stage of its device, address, type, owner, producer or None).");
}
