// Codecs and slicers written in Python, as the core sees them.
//
// The object a hook returned is a prototype: every shard on every link works on a deep copy, so its
// attributes are that copy's state. Calls take the interpreter lock for as long as they last. What
// Python raises, or promises and does not keep, becomes a std::runtime_error with the plugin's words.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "bindings/handles.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

// A Python object that may be dropped on any thread.
class Held {
 public:
  explicit Held(nb::object object) : object_(std::move(object)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (!Py_IsInitialized()) {
      object_.release();  // the interpreter took its memory with it
      return;
    }
    nb::gil_scoped_acquire lock;
    object_.reset();
  }
  const nb::object& get() const { return object_; }

 private:
  nb::object object_;
};

std::string NameOf(const nb::object& object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

template <class Function>
auto Guarded(const Held& object, const char* method, Function&& function) {
  nb::gil_scoped_acquire lock;
  try {
    return function();
  } catch (const nb::python_error& error) {
    throw std::runtime_error(NameOf(object.get()) + "." + method + ": " +
                             NameOf(nb::borrow(error.value())) + ": " +
                             nb::str(error.value()).c_str());
  } catch (const std::bad_cast&) {
    throw std::runtime_error(NameOf(object.get()) + "." + method + " answered with a wrong type");
  }
}

// The numpy type of a part's items, by their width; "values" is the one floating-point part.
std::string TypeOf(const Part& part) {
  if (part.name == "values" && part.bits >= 16) return part.bits == 16 ? "<f2" : "<f4";
  return part.bits == 8 ? "|u1" : "<u" + std::to_string(part.bits / 8);
}

class PythonCodec final : public Codec {
 public:
  explicit PythonCodec(nb::object codec) : codec_(std::move(codec)) {
    survives_holes_ = nb::cast<bool>(nb::getattr(codec_.get(), "survives_holes", nb::bool_(false)));
  }

  void Layout(Parts& parts) const override {
    Guarded(codec_, "layout", [&] {
      nb::dict spec;
      for (const Part& part : parts.parts) {
        spec[part.name.c_str()] = nb::make_tuple(Items(part, parts.rows), TypeOf(part));
      }
      nb::object numpy = nb::module_::import_("numpy");
      std::vector<Part> made;
      std::uint64_t rows = 0;
      const nb::object answer = codec_.get().attr("layout")(spec);
      for (auto [name, item] : nb::cast<nb::dict>(answer)) {
        const auto length = nb::cast<std::uint64_t>(item[nb::int_(0)]);
        const nb::object type = numpy.attr("dtype")(item[nb::int_(1)]);
        Part part{.name = nb::cast<std::string>(name),
                  .bits = 8 * nb::cast<std::uint32_t>(type.attr("itemsize"))};
        part.whole = IsWhole(part.name);
        if (part.whole) {
          part.items = length;
        } else {
          if (rows != 0 && rows != length) throw std::runtime_error("layout: parts differ in rows");
          rows = length;
        }
        made.push_back(std::move(part));
      }
      parts.parts = std::move(made);
      parts.rows = rows;
    });
  }

  void Encode(Parts& parts) override {
    Parts promised = parts;
    Layout(promised);
    Guarded(codec_, "encode", [&] { Replace(parts, Call("encode", parts), &promised); });
  }

  void Decode(Parts& parts) const override {
    Guarded(codec_, "decode", [&] {
      bool cut = false;  // by rows; a codec of whole parts only is never cut
      for (const Part& part : parts.parts) cut = cut || !part.whole;
      const std::uint64_t length = cut ? parts.rows : parts.elements;
      Replace(parts, Call("decode", parts, nb::int_(length)), nullptr);
    });
  }

  bool SurvivesHoles() const override { return survives_holes_; }

 private:
  static std::uint64_t Items(const Part& part, std::uint64_t rows) {
    return part.whole ? part.items : rows;
  }

  bool IsWhole(const std::string& name) const {
    return PySequence_Contains(codec_.get().attr("whole").ptr(), nb::str(name.c_str()).ptr()) == 1;
  }

  // The parts as numpy arrays: copies, so that a codec may keep or change what it is given.
  template <class... Arguments>
  nb::object Call(const char* method, const Parts& parts, Arguments&&... arguments) const {
    nb::object numpy = nb::module_::import_("numpy");
    nb::dict arrays;
    for (const Part& part : parts.parts) {
      if (part.data == nullptr) continue;
      const std::size_t bytes = part.BytesFor(parts.rows);
      nb::object raw = nb::bytes(reinterpret_cast<const char*>(part.data), bytes);
      arrays[part.name.c_str()] = numpy.attr("frombuffer")(raw, TypeOf(part)).attr("copy")();
    }
    return codec_.get().attr(method)(arrays, arguments...);
  }

  void Replace(Parts& parts, const nb::object& answer, const Parts* promised) const {
    nb::object numpy = nb::module_::import_("numpy");
    const std::uint64_t rows_before = parts.rows;
    std::vector<Part> made;
    std::uint64_t rows = promised != nullptr ? promised->rows : rows_before;
    std::uint64_t bytes_made = 0;
    for (auto [key, item] : nb::cast<nb::dict>(answer)) {
      Part part{.name = nb::cast<std::string>(key)};
      nb::object array = numpy.attr("ascontiguousarray")(item);
      if (promised == nullptr && part.name == "values") array = array.attr("astype")("<f4");
      const auto length = nb::cast<std::uint64_t>(array.attr("size"));
      part.bits = 8 * nb::cast<std::uint32_t>(array.attr("itemsize"));
      part.whole = promised != nullptr && IsWhole(part.name);
      if (part.whole) part.items = length;
      if (promised == nullptr) rows = length;
      const auto raw = nb::cast<nb::bytes>(array.attr("tobytes")());
      std::byte* copy = parts.Allocate(raw.size());
      std::memcpy(copy, raw.c_str(), raw.size());
      part.data = copy;
      bytes_made += raw.size();
      made.push_back(std::move(part));
    }
    if (promised != nullptr && bytes_made != promised->SliceBytes(0, promised->rows)) {
      throw std::runtime_error(NameOf(codec_.get()) + ": encode produced " +
                               std::to_string(bytes_made) + " bytes, layout promised " +
                               std::to_string(promised->SliceBytes(0, promised->rows)));
    }
    parts.parts = std::move(made);
    parts.rows = rows;
  }

  Held codec_;
  bool survives_holes_ = false;
};

class PythonSlicer final : public Slicer {
 public:
  explicit PythonSlicer(nb::object slicer) : slicer_(std::move(slicer)) {}

  void Cut(const SliceContext& context, std::vector<Slice>& slices) override {
    Guarded(slicer_, "cut", [&] {
      nb::list list;
      for (const Slice& slice : slices) {
        list.append(nb::make_tuple(slice.first_row, slice.rows, slice.priority, slice.channel));
      }
      const double row_bytes = static_cast<double>(context.encoded.RowBits()) / 8;
      const nb::object answer = slicer_.get().attr("cut")(list, row_bytes, context.round);
      std::vector<Slice> cut;
      std::uint64_t rows = 0;
      for (nb::handle item : answer) {
        Slice slice;
        slice.first_row = nb::cast<std::uint32_t>(item[nb::int_(0)]);
        slice.rows = nb::cast<std::uint32_t>(item[nb::int_(1)]);
        slice.priority = nb::cast<std::int32_t>(item[nb::int_(2)]);
        slice.channel = nb::cast<std::uint8_t>(item[nb::int_(3)]);
        rows += slice.rows;
        cut.push_back(slice);
      }
      if (cut.empty() || rows != context.encoded.rows) {
        throw std::runtime_error(NameOf(slicer_.get()) + ": its slices cover " +
                                 std::to_string(rows) + " rows of " +
                                 std::to_string(context.encoded.rows));
      }
      slices = std::move(cut);
    });
  }

 private:
  Held slicer_;
};

// Makes deep copies of a prototype.
template <class Base, class Product, class Made>
class Copies final : public Base {
 public:
  explicit Copies(nb::object prototype) : prototype_(std::move(prototype)) {}
  std::unique_ptr<Product> Make(const ShardInfo&) const override {
    return Guarded(prototype_, "__deepcopy__", [&]() -> std::unique_ptr<Product> {
      nb::object copy = nb::module_::import_("copy").attr("deepcopy")(prototype_.get());
      return std::make_unique<Made>(std::move(copy));
    });
  }

 private:
  Held prototype_;
};

}  // namespace
}  // namespace geomx

void init_python_parts(nb::module_& m) {
  using namespace geomx;

  m.def("python_codec", [](nb::object prototype) {
    return CodecHandle{std::make_shared<Copies<CodecFactory, Codec, PythonCodec>>(prototype)};
  }, "prototype"_a, "A codec whose methods are Python's; see geomx.plugin.Codec.");
  m.def("python_slicer", [](nb::object prototype) {
    return SlicerHandle{std::make_shared<Copies<SlicerFactory, Slicer, PythonSlicer>>(prototype)};
  }, "prototype"_a, "A slicer whose method is Python's; see geomx.plugin.Slicer.");
}
