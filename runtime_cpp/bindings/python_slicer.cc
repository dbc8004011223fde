// Adapts slicers written in Python (geomx.plugin.Slicer) to the core's interface.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/handles.h"
#include "bindings/python_call.h"
#include "core/message.h"
#include "core/slicer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

class PythonSlicer final : public Slicer {
 public:
  PythonSlicer(nb::object slicer, const std::string& label) : slicer_(std::move(slicer), label) {
    const nb::object best_effort = nb::getattr(slicer_.get(), "best_effort", nb::bool_(false));
    best_effort_ = nb::cast<bool>(nb::bool_(best_effort));
  }

  void Cut(const SliceContext& context, std::vector<Slice>& slices) override {
    const char* wanted = "a list of (first row, rows, priority, channel)";
    Guarded(slicer_, "cut", wanted, [&] {
      nb::list list;
      for (const Slice& slice : slices) {
        list.append(nb::make_tuple(slice.first_row, slice.rows, slice.priority, slice.channel));
      }
      const double row_bytes = context.encoded.RowBits() / 8;
      const nb::object answer = slicer_.get().attr("cut")(list, row_bytes, context.round);
      std::vector<Slice> cut;
      for (nb::handle item : ItemsOf(answer, wanted)) {
        Slice slice = Read(item);
        if (slice.channel != 0 && !best_effort_) {
          throw std::invalid_argument("made a slice on channel " + std::to_string(slice.channel) +
                                      ", which needs the attribute best_effort = True");
        }
        if (!context.survives_holes) slice.channel = 0;  // all of it must arrive
        if (slice.first_row % 8 != 0) {
          throw std::invalid_argument("made a slice that begins at row " +
                                      std::to_string(slice.first_row) + ", no multiple of 8");
        }
        cut.push_back(slice);
      }
      CheckCover(cut, context.encoded.rows);
      slices = std::move(cut);
    });
  }

 private:
  static Slice Read(nb::handle item) {
    const char* wanted = "slices of four whole numbers of 32 bits";
    const nb::tuple numbers = ItemsOf(item, wanted, 4);
    try {
      return {nb::cast<std::uint32_t>(numbers[0]), nb::cast<std::uint32_t>(numbers[1]),
              nb::cast<std::int32_t>(numbers[2]), Channel(nb::cast<std::int64_t>(numbers[3]))};
    } catch (const std::bad_cast&) {
      throw MustReturn(wanted, item);
    }
  }

  static std::uint8_t Channel(std::int64_t number) {
    if (number >= 0 && number <= kMaxChannel) return static_cast<std::uint8_t>(number);
    throw std::invalid_argument("made a slice on channel " + std::to_string(number) +
                                "; there are 0 (reliable) to " + std::to_string(kMaxChannel));
  }

  static std::string Twice(std::uint32_t row) { return "row " + std::to_string(row) + " is in two of them"; }

  static void CheckCover(std::vector<Slice> cut, std::uint64_t rows) {
    std::sort(cut.begin(), cut.end(), [](const Slice& a, const Slice& b) {
      return std::pair(a.first_row, a.rows) < std::pair(b.first_row, b.rows);
    });
    std::uint64_t end = 0;
    const std::string wrong = "made slices that do not cover rows 0 to " + std::to_string(rows) + " once each: ";
    for (const Slice& slice : cut) {
      if (slice.first_row < end) throw std::invalid_argument(wrong + Twice(slice.first_row));
      if (slice.first_row > end) break;
      end += slice.rows;
    }
    if (cut.empty() || end != rows) {
      throw std::invalid_argument(wrong + "they leave off at row " + std::to_string(end));
    }
  }

  PythonObject slicer_;
  bool best_effort_ = false;
};

}  // namespace
}  // namespace geomx

void init_python_slicer(nb::module_& m) {
  using namespace geomx;
  m.def("python_slicer", [](nb::object prototype, const std::string& label) {
    return SlicerHandle{
        std::make_shared<Copies<SlicerFactory, Slicer, PythonSlicer>>(prototype, label)};
  }, "prototype"_a, "label"_a = "",
     "Return a handle of a slicer in Python (geomx.plugin.Slicer). `label` is used in errors.");
}
