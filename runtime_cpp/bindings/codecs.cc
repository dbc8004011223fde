// Codec chains without nodes. Tests use this to hold every installed codec, of any origin, to the
// same laws.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bindings/handles.h"
#include "core/codec.h"
#include "core/slicer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class PyCodecChain {
 public:
  PyCodecChain(const PyCodecChain&) = delete;
  PyCodecChain(const std::vector<CodecHandle>& codecs, std::uint32_t elements)
      : elements_(elements) {
    CodecChain::Factories factories;
    for (const CodecHandle& codec : codecs) factories.push_back(codec.factory);
    chain_ = CodecChain(factories, ShardInfo{.elements = elements});
  }

  bool OnDevices() const { return chain_.OnDevices(elements_); }
  bool DecodesOnDevices() const { return chain_.DecodesOnDevices(elements_); }

  nb::tuple Layout(Round round) const {
    const Parts parts = chain_.Layout(elements_, round);
    return nb::make_tuple(parts.rows, parts.SliceBytes(0, parts.rows));
  }

  nb::list Encode(Vector values, Round round, std::uint64_t rows) {
    if (values.size() != elements_) throw nb::value_error("not a value of this shard");
    Parts parts = Parts::Dense(elements_, values.data(), nullptr);
    parts.round = round;
    chain_.Encode(parts);
    const std::uint64_t granule = parts.Granule();
    const std::uint64_t step =
        rows == 0 ? std::max<std::uint64_t>(1, parts.rows) : (rows + granule - 1) / granule * granule;
    nb::list slices;
    for (std::uint64_t first = 0; first < parts.rows || first == 0; first += step) {
      const std::uint64_t count = std::min(step, parts.rows - first);
      std::string payload;
      for (const Part& part : parts.parts) {
        if (!part.IsIn(first)) continue;
        const std::byte* start = part.data + (part.whole ? 0 : part.BytesFor(first));
        payload.append(reinterpret_cast<const char*>(start), part.BytesFor(count));
      }
      slices.append(nb::make_tuple(first, count, nb::bytes(payload.data(), payload.size())));
    }
    return slices;
  }

  nb::object Decode(nb::bytes payload, std::uint64_t first_row, std::uint64_t rows,
                    std::uint64_t total_rows, Round round) const {
    std::unique_ptr<float[]> out(new float[elements_]());
    const Bytes bytes(reinterpret_cast<const std::byte*>(payload.c_str()), payload.size());
    const char* reason =
        chain_.DecodeInto(bytes, elements_, first_row, rows, total_rows, true, out.get(), round);
    if (reason != nullptr) throw nb::value_error(reason);
    nb::capsule owner(out.get(), [](void* data) noexcept { delete[] static_cast<float*>(data); });
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<1>>(out.release(), {elements_}, owner));
  }

  nb::bytes Add(const std::vector<nb::bytes>& payloads, Round round) const {
    Check();
    Buffer sum;
    for (const nb::bytes& payload : payloads) {
      const Buffer one = Kept(payload, round);
      sum.resize(one.size(), 0.0f);
      for (std::size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
    }
    return nb::bytes(reinterpret_cast<const char*>(sum.data()), sum.size() * sizeof(float));
  }

  void Settle(const nb::bytes& payload, Round round) {
    Check();
    chain_.Settle(Kept(payload, round), elements_, round);
  }

  bool linear() const { return chain_.Linear(); }
  bool survives_holes() const { return chain_.SurvivesHoles(); }

 private:
  void Check() const {
    if (!chain_.Linear()) throw nb::value_error("not a linear chain");
  }

  Buffer Kept(const nb::bytes& payload, Round round) const {
    const std::uint64_t rows = chain_.Layout(elements_, round).rows;
    const Bytes bytes(reinterpret_cast<const std::byte*>(payload.c_str()), payload.size());
    Buffer vector;
    const char* reason = chain_.Keep(bytes, elements_, 0, rows, rows, vector, round);
    if (reason != nullptr) throw nb::value_error(reason);
    return vector;
  }

  std::size_t elements_;
  CodecChain chain_;
};

// The positions of a link's codecs that take part in encoding a shard (the others find no float32
// values), and of its slicers that change how it is cut.
nb::tuple Effects(const std::vector<CodecHandle>& codecs, const std::vector<SlicerHandle>& slicers,
                  std::uint32_t elements) {
  const ShardInfo shard{.elements = elements};
  std::vector<std::pair<std::unique_ptr<Codec>, std::size_t>> ordered;
  CodecChain::Factories factories;
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    factories.push_back(codecs[i].factory);
    Codecs made;
    codecs[i].factory->AddTo(made, shard);
    for (auto& codec : made) ordered.emplace_back(std::move(codec), i);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.first->stage() < b.first->stage();
  });
  std::vector<bool> encodes(codecs.size());
  Parts encoded = Parts::Dense(elements, nullptr, nullptr);
  for (const auto& [codec, position] : ordered) {
    if (!Codec::Concerns(encoded)) break;
    codec->Layout(encoded);
    encodes[position] = true;
  }
  const SliceContext context{shard, 1, encoded, CodecChain(factories, shard).SurvivesHoles(),
                             std::nan("")};
  std::vector<bool> cuts;
  std::vector<Slice> slices(1, {.first_row = 0, .rows = static_cast<std::uint32_t>(encoded.rows)});
  for (const SlicerHandle& slicer : slicers) {
    const std::vector<Slice> before = slices;
    slicer.factory->Make(shard)->Cut(context, slices);
    cuts.push_back(!std::equal(before.begin(), before.end(), slices.begin(), slices.end(),
                               [](const Slice& a, const Slice& b) {
                                 return a.first_row == b.first_row && a.rows == b.rows &&
                                        a.priority == b.priority && a.channel == b.channel;
                               }));
  }
  return nb::make_tuple(encodes, cuts);
}

}  // namespace
}  // namespace geomx

void init_codecs(nb::module_& m) {
  using geomx::PyCodecChain;
  m.def("link_effects", &geomx::Effects, "codecs"_a, "slicers"_a, "elements"_a,
        "Return which of a link's codecs and slicers have an effect on a shard of `elements` elements, as\n"
        "two lists of bool in the order given.");
  nb::class_<PyCodecChain>(m, "CodecChain", "The chain of codecs of one shard on one link, with their state.")
      .def(nb::init<const std::vector<geomx::CodecHandle>&, std::uint32_t>(), "codecs"_a,
           "elements"_a)
      .def_prop_ro("decodes_on_devices", &PyCodecChain::DecodesOnDevices,
                   "Whether encoded values can be decoded on a device.")
      .def_prop_ro("on_devices", &PyCodecChain::OnDevices,
                   "Whether all codecs can encode values on a GPU.")
      .def("layout", &PyCodecChain::Layout, "round"_a = 1,
           "Return (rows, bytes) of an encoded value of that round.")
      .def("encode", &PyCodecChain::Encode, "values"_a, "round"_a = 1, "rows"_a = 0,
           "Encode; return a list of (first row, rows, payload), in slices of `rows` rows (0: one\n"
           "slice; else a multiple of 8, rounded up to whole chunks). ValueError if the value has another length.")
      .def("decode", &PyCodecChain::Decode, "payload"_a, "first_row"_a, "rows"_a, "total_rows"_a,
           "round"_a = 1,
           "Return the dense vector of one slice, zero elsewhere. ValueError if the slice is invalid.")
      .def("add", &PyCodecChain::Add, "payloads"_a, "round"_a = 1,
           "Return the encoded sum of payloads, one slice per sender, of a linear chain. ValueError if\n"
           "the chain is not linear.")
      .def("settle", &PyCodecChain::Settle, "payload"_a, "round"_a = 1,
           "Pass the encoded sum of a round to the codecs of a linear chain.")
      .def_prop_ro("linear", &PyCodecChain::linear)
      .def_prop_ro("survives_holes", &PyCodecChain::survives_holes);
}
