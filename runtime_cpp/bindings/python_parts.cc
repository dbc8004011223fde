// Adapts codecs written in Python to the core's interface.
//
// The object that a hook returns is a prototype: every shard on every link has a deep copy, whose
// attributes are that copy's state. Calls hold the interpreter lock only while Python runs; arrays
// are copied, in and out, without it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/handles.h"
#include "bindings/python_arrays.h"
#include "bindings/python_call.h"
#include "kernels/bits.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

// Limits the size of an encoded value, relative to the dense one, in case of a plugin's mistake.
constexpr std::uint64_t kLargestGrowth = 16, kAlwaysAllowed = 64 << 10;

class PythonCodec final : public Codec {
 public:
  PythonCodec(nb::object codec, const std::string& label) : codec_(std::move(codec), label) {
    survives_holes_ = nb::cast<bool>(nb::getattr(codec_.get(), "survives_holes", nb::bool_(false)));
    linear_ = nb::cast<bool>(nb::getattr(codec_.get(), "linear", nb::bool_(false)));
    settles_ = codec_.Has("settle");
    has_residual_ = codec_.Has("residual_norm");
    const auto stage = nb::cast<std::string>(nb::getattr(codec_.get(), "stage", nb::str("select")));
    if (stage == "quantise") {
      stage_ = Stage::kQuantise;
    } else if (stage == "cast") {
      stage_ = Stage::kCast;
    } else if (stage != "select") {
      throw std::invalid_argument("has stage \"" + stage + "\", not select, quantise or cast");
    }
  }

  void Layout(Parts& parts) const override {
    const char* wanted = "a dict of name: (length, dtype) or (length, dtype, rows per item)";
    Guarded(codec_, "layout", wanted, [&] {
      nb::dict spec;
      for (const Part& part : parts.parts) {
        if (Shown(part)) {
          spec[part.name.c_str()] = nb::make_tuple(part.ItemsFor(parts.rows), TypeOf(part));
        }
      }
      nb::object numpy = nb::module_::import_("numpy");
      std::vector<Part> made;
      types_.clear();
      std::uint64_t rows = 0;
      bool chunks = false;
      const nb::object answer = codec_.get().attr("layout")(spec);
      for (auto [name, item] : nb::cast<nb::dict>(answer)) {
        const auto length = nb::cast<std::uint64_t>(item[nb::int_(0)]);
        const nb::object type = numpy.attr("dtype")(item[nb::int_(1)]);
        Part part{.name = nb::cast<std::string>(name),
                  .bits = 8 * nb::cast<std::uint32_t>(type.attr("itemsize"))};
        if (nb::cast<bool>(type.attr("hasobject"))) {
          throw std::invalid_argument("promises \"" + part.name + "\" of Python objects, not numbers");
        }
        if (type.attr("subdtype").is_none()) types_[part.name] = nb::cast<std::string>(type.attr("str"));
        if (linear_ && (!numpy.attr("float32").equal(type.attr("type")) || part.name == "indices")) {
          throw std::invalid_argument("promises \"" + part.name + "\" of " +
                                      nb::cast<std::string>(type.attr("name")) +
                                      ", but a linear codec's parts are float32");
        }
        part.in_every_slice = Lists("in_every_slice", part.name);
        part.whole = part.in_every_slice || Lists("whole", part.name);
        if (nb::len(item) > 2) part.span = nb::cast<std::uint64_t>(item[nb::int_(2)]);
        CheckSpan(part, length, parts.rows);
        if (part.whole) {
          part.items = length;
        } else if (part.span > 1) {
          chunks = true;
        } else {
          if (rows != 0 && rows != length) {
            throw std::invalid_argument("promises parts that differ in rows");
          }
          rows = length;
        }
        made.push_back(std::move(part));
      }
      if (made.empty()) throw std::invalid_argument("promises no parts at all");
      if (chunks && rows != 0 && rows != parts.rows) {
        throw std::invalid_argument("promises chunks of other rows than those of its other parts");
      }
      if (chunks) rows = parts.rows;
      const std::uint64_t most = kLargestGrowth * 4 * parts.elements + kAlwaysAllowed;
      std::uint64_t bytes = 0;
      for (const Part& part : made) {
        const std::uint64_t items = part.ItemsFor(rows);
        if (items > most || (bytes += part.BytesFor(rows)) > most) {
          throw std::invalid_argument("promises " + std::to_string(items) + " items of \"" +
                                      part.name + "\" for a shard of " +
                                      std::to_string(parts.elements) + " elements");
        }
      }
      const bool cut = rows != 0;
      passing_ = Passing(parts, made);
      for (const Part& part : passing_) {
        if (!part.whole && cut && rows != parts.rows) {
          throw std::invalid_argument("promises other rows than an earlier codec has chosen");
        }
        made.push_back(part);
      }
      if (cut || passing_.empty()) parts.rows = rows;
      parts.parts = std::move(made);
    });
  }

  void Encode(Parts& parts) override {
    Parts promised = parts;
    Layout(promised);
    std::vector<Part> passing = Kept(parts);
    promised.parts.resize(promised.parts.size() - passing.size());
    Call("encode", parts, &promised);
    parts.parts.insert(parts.parts.end(), passing.begin(), passing.end());
  }

  void Decode(Parts& parts) const override {
    std::vector<Part> passing = Kept(parts);
    Call("decode", parts, nullptr);
    for (Part& part : passing) {
      if (parts.Find(part.name) == nullptr) parts.parts.push_back(std::move(part));
    }
  }

  bool Linear() const override { return linear_; }

  void Settle(const Parts& sum) override {
    if (!settles_) return;
    std::vector<Item> items = Copied(sum);
    Guarded(codec_, "settle", "None", [&] {
      nb::dict arrays;
      for (Item& item : items) arrays[item.part.name.c_str()] = Array(item, true);
      codec_.get().attr("settle")(arrays);
    });
  }

  double SquaredResidual() const override {
    if (!has_residual_) return 0;
    const double norm = Guarded(codec_, "residual_norm", "a number",
                                [&] { return nb::cast<double>(codec_.get().attr("residual_norm")()); });
    return norm * norm;
  }

  bool SurvivesHoles() const override { return survives_holes_; }
  Stage stage() const override { return stage_; }

 private:
  struct Item {
    Part part;
    std::uint64_t items;
    std::shared_ptr<std::byte[]> memory;
  };

  // A part that numpy has a type for; indices of odd widths are unpacked.
  static bool Shown(const Part& part) { return part.bits % 8 == 0 || part.name == "indices"; }

  static void CheckSpan(const Part& part, std::uint64_t length, std::uint64_t rows) {
    if (part.span == 1) return;
    if (part.whole || part.span == 0 || part.span % 8 != 0) {
      throw std::invalid_argument("promises \"" + part.name + "\" with an item per " +
                                  std::to_string(part.span) + " rows, no multiple of 8");
    }
    if (length != part.ItemsFor(rows)) {
      throw std::invalid_argument("promises " + std::to_string(length) + " items of \"" + part.name +
                                  "\", not one per " + std::to_string(part.span) + " rows of " +
                                  std::to_string(rows));
    }
  }

  // Parts of an earlier codec, besides the values, that this one does not mention.
  static std::vector<Part> Passing(const Parts& given, const std::vector<Part>& made) {
    std::vector<Part> passing;
    for (const Part& part : given.parts) {
      const auto same = [&](const Part& other) { return other.name == part.name; };
      if (part.name != "values" && std::none_of(made.begin(), made.end(), same)) {
        passing.push_back(part);
      }
    }
    return passing;
  }

  // The parts, with their data, that the layout said pass by.
  std::vector<Part> Kept(const Parts& parts) const {
    std::vector<Part> kept;
    for (const Part& part : passing_) {
      if (const Part* found = parts.Find(part.name)) kept.push_back(*found);
    }
    return kept;
  }

  bool Lists(const char* attribute, const std::string& name) const {
    const nb::object names = nb::getattr(codec_.get(), attribute, nb::tuple());
    const int found = PySequence_Contains(names.ptr(), nb::str(name.c_str()).ptr());
    if (found < 0) throw nb::python_error();
    return found == 1;
  }

  // Copies of the parts, so that a codec may keep or change what it is given.
  static std::vector<Item> Copied(const Parts& parts) {
    std::vector<Item> items;
    for (const Part& part : parts.parts) {
      if (part.data == nullptr || !Shown(part)) continue;
      const std::uint64_t count = part.ItemsFor(parts.rows);
      const bool odd = part.name == "indices" && part.bits != 32;
      const std::size_t bytes = odd ? count * sizeof(std::uint32_t) : part.BytesFor(parts.rows);
      Item item{part, count, kernels::ShareMemory(std::max<std::size_t>(bytes, 1))};
      if (odd) {
        UnpackBits(part.data, count, part.bits, reinterpret_cast<std::uint32_t*>(item.memory.get()));
        item.part.bits = 32;
      } else {
        std::memcpy(item.memory.get(), part.data, bytes);
      }
      items.push_back(std::move(item));
    }
    return items;
  }

  static nb::object Array(Item& item, bool floats) {
    using Memory = std::shared_ptr<std::byte[]>;
    auto* kept = new Memory(std::move(item.memory));
    nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<Memory*>(memory); });
    const std::size_t shape[] = {item.items, item.part.bits / 8};
    return nb::cast(nb::ndarray<nb::numpy>(kept->get(), Numeric(item.part) ? 1 : 2, shape, owner,
                                           nullptr, Code(item.part, floats)));
  }

  // A received part as what the layout said: messages have widths only.
  nb::object Typed(const nb::object& array, const std::string& name) const {
    const auto type = types_.find(name);
    if (type == types_.end()) return array;
    return array.attr("view")(type->second).attr("reshape")(-1);
  }

  // Encodes if `promised` is not null, otherwise decodes.
  void Call(const char* method, Parts& parts, const Parts* promised) const {
    bool cut = false;  // by rows; a codec of whole parts only is never cut
    for (const Part& part : parts.parts) cut = cut || !part.whole;
    const std::uint64_t length = cut ? parts.rows : parts.elements;
    std::vector<Item> items = Copied(parts);
    const char* wanted = promised ? "a dict of arrays, as layout promised" : "{\"values\": array}";
    Guarded(codec_, method, wanted, [&](Entry& entry) {
      nb::dict arrays;
      for (Item& item : items) {
        nb::object array = Array(item, linear_);
        arrays[item.part.name.c_str()] = promised ? array : Typed(array, item.part.name);
      }
      const nb::object answer = promised ? codec_.get().attr(method)(arrays)
                                         : codec_.get().attr(method)(arrays, nb::int_(length));
      nb::list alive;
      std::vector<View> views;
      std::vector<Part> made = Inspect(nb::cast<nb::dict>(answer), promised, length, alive, views);
      const auto apart = Ledger::Clock::now();
      {
        nb::gil_scoped_release release;
        for (std::size_t i = 0; i < made.size(); ++i) {
          std::byte* copy = parts.Allocate(std::max<std::size_t>(views[i].bytes(), 1));
          std::memcpy(copy, views[i].data(), views[i].bytes());
          made[i].data = copy;
        }
        entry.Apart(Ledger::Clock::now() - apart);
      }
      parts.parts = std::move(made);
      parts.rows = promised ? promised->rows : length;
    });
  }

  // Checks Python's result against the layout; copies nothing.
  std::vector<Part> Inspect(const nb::dict& answer, const Parts* promised, std::uint64_t length,
                            nb::list& alive, std::vector<View>& views) const {
    nb::object numpy = nb::module_::import_("numpy");
    std::vector<Part> made;
    std::uint64_t bytes = 0;
    bool values = false;
    for (auto [key, item] : answer) {
      Part part{.name = nb::cast<std::string>(key)};
      nb::object array = numpy.attr("ascontiguousarray")(item);
      if (!promised && part.name == "values") array = Float32(numpy, array);
      values = values || part.name == "values";
      const auto items = nb::cast<std::uint64_t>(array.attr("size"));
      part.bits = 8 * nb::cast<std::uint32_t>(array.attr("itemsize"));
      if (promised) {
        const Part* said = promised->Find(part.name);
        if (said != nullptr && (said->span > 1 || !Numeric(*said))) SetWidth(array, *said, part);
        const std::string produced = "produced \"" + part.name + "\" of ";
        const auto type = [&](const char* form) { return nb::cast<std::string>(array.attr("dtype").attr(form)); };
        if (linear_ && type("name") != "float32") {
          throw std::invalid_argument(produced + type("name") + ", but a linear codec's parts are float32");
        }
        if (said == nullptr || said->bits != part.bits) {
          throw std::invalid_argument(produced + std::to_string(part.bits) + " bits, which layout did not promise");
        }
        const auto plain = types_.find(part.name);
        if (said->span == 1 && Numeric(*said) && plain != types_.end() && plain->second != type("str")) {
          throw std::invalid_argument(produced + type("str") + ", which layout did not promise");
        }
        part.whole = said->whole;
        part.in_every_slice = said->in_every_slice;
        part.span = said->span;
      }
      if (part.whole) part.items = nb::cast<std::uint64_t>(array.attr("nbytes")) * 8 / part.bits;
      if (!promised && items != length) {
        throw std::invalid_argument("made " + std::to_string(items) + " of \"" + part.name +
                                    "\", not " + std::to_string(length));
      }
      alive.append(array);
      views.emplace_back(array);
      bytes += views.back().bytes();
      made.push_back(std::move(part));
    }
    if (promised) {
      const std::uint64_t expected = promised->SliceBytes(0, promised->rows);
      if (bytes != expected || made.size() != promised->parts.size()) {
        throw std::invalid_argument("produced " + std::to_string(bytes) +
                                    " bytes, layout promised " + std::to_string(expected));
      }
      InOrderOf(*promised, made, views);
    } else if (!values) {
      throw std::invalid_argument("made no \"values\"");
    }
    return made;
  }

  // Receivers read parts in the order of the layout, whatever the order of the dict.
  static void InOrderOf(const Parts& promised, std::vector<Part>& made, std::vector<View>& views) {
    std::vector<Part> parts;
    std::vector<View> sorted;
    for (const Part& part : promised.parts) {
      for (std::size_t i = 0; i < made.size(); ++i) {
        if (made[i].name != part.name) continue;
        parts.push_back(made[i]);
        sorted.push_back(std::move(views[i]));
      }
    }
    made = std::move(parts);
    views.swap(sorted);
  }

  PythonObject codec_;
  bool survives_holes_ = false, linear_ = false, settles_ = false, has_residual_ = false;
  Stage stage_ = Stage::kSelect;
  // By the last layout: parts of earlier codecs that pass by, and the types of its own parts.
  mutable std::vector<Part> passing_;
  mutable std::map<std::string, std::string> types_;
};

}  // namespace
}  // namespace geomx

void init_python_parts(nb::module_& m) {
  using namespace geomx;

  m.def("python_codec", [](nb::object prototype, const std::string& label) {
    return CodecHandle{std::make_shared<Copies<SingleCodecFactory, Codec, PythonCodec>>(prototype, label)};
  }, "prototype"_a, "label"_a = "",
     "Return a handle of a codec in Python (geomx.plugin.Codec). `label` is used in errors.");
  m.def("python_costs", [] {
    std::map<std::string, std::tuple<std::uint64_t, double, double>> costs;
    for (const auto& [label, cost] : Ledger::Instance().costs()) {
      costs[label] = {cost.calls, cost.seconds, cost.waited};
    }
    return costs;
  }, "Return the costs of calls of plugins' Python objects in this process, by label: number of calls,\n"
     "seconds in Python, seconds of waiting for the interpreter lock.");
  m.def("python_calls", [] {
    std::vector<std::tuple<std::string, double, unsigned long, std::uint64_t>> calls;
    for (const auto& [thread, call] : Ledger::Instance().calls()) {
      const std::chrono::duration<double> took = Ledger::Clock::now() - call.since;
      calls.emplace_back(call.what, took.count(), call.thread, call.number);
    }
    return calls;
  }, "Return the current calls of plugins' Python objects: (label: method, seconds so far, thread id\n"
     "as of `threading.get_ident`, number of the call).");

  nb::register_exception_translator([](const std::exception_ptr& raised, void*) {
    try {
      std::rethrow_exception(raised);
    } catch (const Refusal& refusal) {
      PyErr_SetString(RefusedType().ptr(), refusal.what());
    } catch (const PluginFailure& failure) {
      const nb::object type = nb::module_::import_("geomx.errors").attr("PluginError");
      PyErr_SetString(type.ptr(), failure.what());
    }
  });
}
