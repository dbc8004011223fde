// Tensors of other frameworks, on whatever device: what DLPack says about one, and a Stage, which brings
// their values to the host as float32 and back.
//
// A stage has a queue on its device and pinned host memory for the copies, which it keeps up to a bound.
// Casts happen on the device, so that a tensor of 16 bits crosses the bus in 16 bits.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "kernels/bfloat.h"
#include "kernels/half.h"
#include "kernels/queue.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using kernels::Queue;
using Vector = nb::ndarray<nb::numpy, float, nb::ndim<1>, nb::c_contig>;

// Values of a tensor as they lie in its memory.
enum class Kind { kFloat32, kFloat16, kBfloat16 };

Kind KindOf(const std::string& name) {
  if (name == "float32") return Kind::kFloat32;
  if (name == "float16") return Kind::kFloat16;
  if (name == "bfloat16") return Kind::kBfloat16;
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

class Stage {
 public:
  Stage(const std::string& device, std::size_t most_kept)
      : queue_(kernels::OpenQueue(device)), most_kept_(most_kept) {}

  ~Stage() {
    for (const Pinned& pinned : kept_) queue_->GivePinned(pinned.memory);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  std::string device() const { return queue_->device().name; }
  std::uintptr_t stream() const { return queue_->stream(); }

  std::size_t kept() {
    const std::lock_guard lock(mutex_);
    return kept_bytes_;
  }

  void After(std::uintptr_t stream) {
    const std::lock_guard lock(mutex_);
    queue_->After(stream);
  }

  void Fetch(std::uintptr_t address, const std::string& type, const Vector& out) {
    const Kind kind = KindOf(type);
    const std::uint64_t n = out.size();
    const nb::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = n * (kind == Kind::kFloat32 ? 4 : 2);
    const Loan loan(*this, bytes);
    queue_->Copy(loan.memory(), reinterpret_cast<const void*>(address), bytes);
    queue_->Wait();
    switch (kind) {
      case Kind::kFloat32: Move(out.data(), loan.memory(), bytes); break;
      case Kind::kFloat16: kernels::Widen(loan.memory(), out.data(), n); break;
      case Kind::kBfloat16: kernels::WidenBfloat(loan.memory(), out.data(), n); break;
    }
  }

  void Fill(const Vector& values, std::uintptr_t address, const std::string& type,
            std::intptr_t consumer) {
    const Kind kind = KindOf(type);
    const std::uint64_t n = values.size();
    const nb::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    queue_->Wait();  // the loan of the time before has been read
    const std::size_t bytes = n * (kind == Kind::kFloat32 ? 4 : 2);
    const Loan loan(*this, bytes);
    auto* narrow = reinterpret_cast<std::uint16_t*>(loan.memory());
    switch (kind) {
      case Kind::kFloat32: Move(loan.memory(), values.data(), bytes); break;
      case Kind::kFloat16: kernels::Narrow(values.data(), narrow, n); break;
      case Kind::kBfloat16: kernels::NarrowBfloat(values.data(), narrow, n); break;
    }
    queue_->Copy(reinterpret_cast<void*>(address), loan.memory(), bytes);
    if (consumer >= 0) {
      queue_->Before(static_cast<std::uintptr_t>(consumer));
    } else {
      queue_->Wait();
    }
  }

 private:
  struct Pinned {
    std::byte* memory;
    std::size_t bytes;
  };

  // Pinned memory for one copy; afterwards it is kept, if that stays within the bound. What is kept is
  // taken again only behind a Wait.
  class Loan {
   public:
    Loan(Stage& stage, std::size_t bytes) : stage_(stage), pinned_(stage.Take(bytes)) {}
    ~Loan() { stage_.Give(pinned_); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    std::byte* memory() const { return pinned_.memory; }

   private:
    Stage& stage_;
    Pinned pinned_;
  };

  static void Move(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  // The smallest that is kept and large enough, or a new one.
  Pinned Take(std::size_t bytes) {
    auto best = kept_.end();
    for (auto each = kept_.begin(); each != kept_.end(); ++each) {
      if (each->bytes >= bytes && (best == kept_.end() || each->bytes < best->bytes)) best = each;
    }
    if (best == kept_.end()) return {queue_->TakePinned(bytes), bytes};
    const Pinned pinned = *best;
    kept_.erase(best);
    kept_bytes_ -= pinned.bytes;
    return pinned;
  }

  void Give(const Pinned& pinned) {
    kept_.push_back(pinned);
    kept_bytes_ += pinned.bytes;
    while (kept_bytes_ > most_kept_) {  // the smallest serve the fewest, but none that is too large
      const auto smaller = [this](const Pinned& a, const Pinned& b) {
        const bool a_fits = a.bytes <= most_kept_, b_fits = b.bytes <= most_kept_;
        return a_fits != b_fits ? b_fits : a.bytes < b.bytes;
      };
      const auto least = std::min_element(kept_.begin(), kept_.end(), smaller);
      queue_->GivePinned(least->memory);  // waits for its copy
      kept_bytes_ -= least->bytes;
      kept_.erase(least);
    }
  }

  std::mutex mutex_;
  std::unique_ptr<Queue> queue_;
  std::size_t most_kept_, kept_bytes_ = 0;
  std::vector<Pinned> kept_;
};

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
  m.def("describe_tensor", &Describe, "tensor"_a,
        "Of a DLPack capsule, or an object that gives one: (device type, device number, address,\n"
        "shape, type's name, strides in bytes).");
  nb::class_<Stage>(m, "Stage", R"(Brings tensors of one device to the host and back, as float32.

ValueError if there is no such device. Thread-safe. At most `most_kept` bytes of pinned memory are
kept between copies.)")
      .def(nb::init<const std::string&, std::size_t>(), "device"_a,
           "most_kept"_a = std::size_t{256} << 20)
      .def_prop_ro("device", &Stage::device)
      .def_prop_ro("stream", &Stage::stream, "The queue's stream as a number, for DLPack.")
      .def_prop_ro("kept", &Stage::kept, "Bytes of pinned memory that wait for the next copy.")
      .def("after", &Stage::After, "producer"_a, nb::call_guard<nb::gil_scoped_release>(),
           "What the stream `producer` has been given so far comes before what is asked for next.")
      .def("fetch", &Stage::Fetch, "address"_a, "type"_a, "out"_a.noconvert(),
           "Copy a contiguous tensor's values into a float32 vector as long as it. What the queue's\n"
           "stream waits for comes first.")
      .def("fill", &Stage::Fill, "values"_a.noconvert(), "address"_a, "type"_a, "consumer"_a = -1,
           "Copy float32 values into a contiguous tensor. The stream `consumer` waits for it; without\n"
           "one (-1) the caller does.");
}
