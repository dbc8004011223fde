// Adapts codecs in plugins' shared libraries (geomx/include/geomx/codec.h) to the core's interface.
//
// They run where the compiled-in ones run, without the interpreter lock. A library stays loaded as
// long as any of its codecs lives, in practice until the process ends.
#include <dlfcn.h>
#include <geomx/codec.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/handles.h"
#include "core/plugin_failure.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace geomx {
namespace {

struct Library {
  std::string label;  // plugin and hook, for errors
  std::map<std::string, double> options;
  const geomx_codec* table = nullptr;

  void Check(const char* method, const char* words) const {
    if (words != nullptr) throw PluginFailure(label + "." + method + ": " + words);
  }

  void CheckDecoded(const char* words) const {
    constexpr std::string_view kRefused = GEOMX_REFUSED;
    const std::string_view said = words != nullptr ? words : "";
    if (!said.starts_with(kRefused)) return Check("decode", words);
    throw Refusal(label + ".decode refused the bytes: " +
                  std::string(said.substr(kRefused.size())));
  }
};

class LibraryCodec final : public Codec {
 public:
  LibraryCodec(std::shared_ptr<const Library> library, std::uint64_t elements)
      : library_(std::move(library)) {
    std::vector<geomx_option> options;
    for (const auto& [name, value] : library_->options) options.push_back({name.c_str(), value});
    char error[256] = "it made nothing";
    codec_ = library_->table->make(options.data(), options.size(), elements, error, sizeof error);
    if (codec_ == nullptr) library_->Check("make", error);
  }
  LibraryCodec(const LibraryCodec&) = delete;
  LibraryCodec& operator=(const LibraryCodec&) = delete;
  ~LibraryCodec() override { library_->table->drop(codec_); }

  void Layout(Parts& parts) const override {
    std::vector<Part> made = Own(parts);
    for (Part& part : parts.parts) {
      if (part.name != "values") made.push_back(std::move(part));
    }
    parts.parts = std::move(made);
  }

  void Encode(Parts& parts) override {
    const Part* values = parts.Find("values");
    const auto* data = values ? reinterpret_cast<const float*>(values->data) : nullptr;
    const std::uint64_t count = parts.rows;
    Parts coded = parts;
    Layout(coded);
    const std::size_t others = parts.parts.size() - 1;
    std::vector<void*> own;
    for (std::size_t i = 0; i + others < coded.parts.size(); ++i) {
      Part& part = coded.parts[i];
      const std::size_t bytes = part.BytesFor(coded.rows);
      own.push_back(coded.Allocate(std::max<std::size_t>(bytes, 1)));
      part.data = static_cast<std::byte*>(own.back());
    }
    library_->Check("encode",
                    library_->table->encode(codec_, parts.round, data, count, own.data()));
    parts = std::move(coded);
  }

  void Decode(Parts& parts) const override {
    Parts dense = Parts::Dense(parts.elements, nullptr, nullptr);
    dense.round = parts.round;
    const std::size_t own = Own(dense).size();
    std::vector<const void*> data;
    std::vector<Part> kept;
    bool cut = false;
    for (std::size_t i = 0; i < parts.parts.size(); ++i) {
      const Part& part = parts.parts[i];
      cut = cut || !part.whole;
      if (i < own) data.push_back(part.data);
      if (i >= own || part.name == "indices") kept.push_back(part);
    }
    const std::uint64_t count = cut ? parts.rows : parts.elements;
    std::byte* values = parts.Allocate(std::max<std::size_t>(count * sizeof(float), 1));
    library_->CheckDecoded(library_->table->decode(codec_, parts.round, parts.first_row, data.data(),
                                                   reinterpret_cast<float*>(values), count));
    kept.insert(kept.begin(), Part{.name = "values", .bits = 32, .data = values});
    parts.parts = std::move(kept);
    parts.rows = count;
  }

  bool Linear() const override { return (library_->table->flags & GEOMX_LINEAR) != 0; }

  void Settle(const Parts& sum) override {
    if (library_->table->settle == nullptr) return;
    std::vector<const void*> data;
    for (const Part& part : sum.parts) data.push_back(part.data);
    library_->Check("settle", library_->table->settle(codec_, sum.round, data.data()));
  }

  bool SurvivesHoles() const override { return (library_->table->flags & GEOMX_SURVIVES_HOLES) != 0; }
  bool FixedSize() const override { return (library_->table->flags & GEOMX_FIXED_SIZE) != 0; }

 private:
  // The parts that this codec makes from the values; sets the number of rows.
  std::vector<Part> Own(Parts& parts) const {
    const Part* values = parts.Find("values");
    if (values == nullptr || values->bits != 32) {
      library_->Check("layout", "it needs float32 values; a codec before it left none");
    }
    geomx_layout layout{.values = parts.rows, .rows = parts.rows, .count = 0, .parts = {}};
    library_->Check("layout", library_->table->layout(codec_, parts.round, &layout));
    if (layout.count == 0 || layout.count > GEOMX_MOST_PARTS) {
      library_->Check("layout", "it promises no parts, or more than 8");
    }
    std::vector<Part> made;
    bool chooses = false, cut = false;
    for (std::uint32_t i = 0; i < layout.count; ++i) {
      const geomx_part& said = layout.parts[i];
      Part part{.name = std::string(said.name, strnlen(said.name, sizeof said.name)),
                .bits = said.bits,
                .whole = (said.flags & GEOMX_WHOLE) != 0,
                .in_every_slice = (said.flags & GEOMX_IN_EVERY_SLICE) != 0,
                .items = said.items,
                .span = std::max<std::uint64_t>(1, said.span)};
      const std::uint64_t items = part.ItemsFor(parts.rows);
      const std::uint64_t most = 64 * parts.elements + 262144;  // bytes
      if (part.bits == 0 || part.bits % 8 != 0 || items > most || items * (part.bits / 8) > most) {
        library_->Check("layout", ("part " + part.name + " has an impossible size").c_str());
      }
      if (part.span != 1 && (part.whole || part.span % 8 != 0)) {
        library_->Check("layout", ("part " + part.name + " has an impossible span").c_str());
      }
      if (Linear() && (part.bits != 32 || part.name == "indices")) {
        library_->Check("layout", ("it is linear, so " + part.name + " must be float32").c_str());
      }
      chooses = chooses || (part.name == "indices" && part.bits == 32 && !part.whole);
      cut = cut || !part.whole;
      made.push_back(std::move(part));
    }
    if (cut && layout.rows != parts.rows && !(chooses && layout.rows < parts.rows)) {
      library_->Check("layout", "it promises other rows than it was given, and no indices");
    }
    if (chooses && parts.Find("indices") != nullptr) {
      library_->Check("layout", "it chooses rows, so it must be the first codec of its link");
    }
    const bool passing = parts.parts.size() > 1;
    parts.rows = cut ? layout.rows : passing ? parts.rows : 0;
    return made;
  }

  std::shared_ptr<const Library> library_;
  void* codec_ = nullptr;
};

class LibraryFactory final : public SingleCodecFactory {
 public:
  explicit LibraryFactory(Library library)
      : library_(std::make_shared<const Library>(std::move(library))) {}
  std::unique_ptr<Codec> Make(const ShardInfo& shard) const override {
    return std::make_unique<LibraryCodec>(library_, shard.elements);
  }

 private:
  std::shared_ptr<const Library> library_;
};

CodecHandle Load(const std::string& path, const std::map<std::string, double>& options,
                 const std::string& label) {
  void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) throw std::invalid_argument(dlerror());
  using Find = const geomx_codec* (*)();
  const auto find = reinterpret_cast<Find>(dlsym(opened, "geomx_codec_table"));
  const geomx_codec* table = find != nullptr ? find() : nullptr;
  if (table == nullptr) throw std::invalid_argument(path + " has no geomx_codec_table");
  if (table->abi != GEOMX_CODEC_ABI) {
    throw std::invalid_argument(path + " was built for codec interface " +
                                std::to_string(table->abi) + ", this geomx has " +
                                std::to_string(GEOMX_CODEC_ABI) + ": build it again");
  }
  return {std::make_shared<LibraryFactory>(Library{label, options, table})};
}

}  // namespace
}  // namespace geomx

void init_library(nb::module_& m) {
  m.attr("CODEC_ABI") = GEOMX_CODEC_ABI;
  m.def("library_codec", &geomx::Load, "path"_a, "options"_a, "label"_a,
        "Load the codec in a shared library; ValueError if that fails. `label` is used in errors.");
}
