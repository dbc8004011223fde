// Parts, layouts and slices, with a codec that selects rows and one that quantises to bytes.
#include "core/codec.h"

#include <algorithm>
#include <cstring>

#include "kernels/bits.h"
#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;

Bytes AsBytes(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

// Selects every third row, with indices.
class EveryThird final : public Codec {
 public:
  void Layout(Parts& parts) const override {
    parts.rows = (parts.elements + 2) / 3;
    parts.parts.push_back({.name = "indices", .bits = 32});
  }
  void Encode(Parts& parts) override {
    const auto* in = reinterpret_cast<const float*>(parts.Find("values")->data);
    Layout(parts);
    auto* values = reinterpret_cast<float*>(parts.Allocate(parts.rows * sizeof(float)));
    auto* indices = reinterpret_cast<std::uint32_t*>(parts.Allocate(parts.rows * 4));
    for (std::uint32_t row = 0; row < parts.rows; ++row) {
      values[row] = in[3 * row];
      indices[row] = 3 * row;
    }
    parts.Find("values")->data = reinterpret_cast<std::byte*>(values);
    parts.Find("indices")->data = reinterpret_cast<std::byte*>(indices);
  }
  void Decode(Parts& parts) const override { (void)parts; }
};

// One signed byte per row, and a common scale.
class Scaled final : public Codec {
 public:
  void Layout(Parts& parts) const override {
    parts.Find("values")->bits = 8;
    parts.parts.push_back({.name = "scale", .bits = 32, .whole = true, .items = 1});
  }
  void Encode(Parts& parts) override {
    const auto* in = reinterpret_cast<const float*>(parts.Find("values")->data);
    Layout(parts);
    std::byte* out = parts.Allocate(parts.rows);
    for (std::uint64_t i = 0; i < parts.rows; ++i) {
      out[i] = static_cast<std::byte>(static_cast<std::int8_t>(in[i] / 2));
    }
    std::byte* scale = parts.Allocate(sizeof(float));
    const float two = 2;
    std::memcpy(scale, &two, sizeof two);
    parts.Find("values")->data = out;
    parts.Find("scale")->data = scale;
  }
  void Decode(Parts& parts) const override {
    Part* values = parts.Find("values");
    auto* out = reinterpret_cast<float*>(parts.Allocate(parts.rows * sizeof(float)));
    for (std::uint64_t i = 0; i < parts.rows; ++i) {
      out[i] = 2.0f * static_cast<float>(std::to_integer<std::int8_t>(values->data[i]));
    }
    values->data = reinterpret_cast<std::byte*>(out);
    values->bits = 32;
  }
  bool SurvivesHoles() const override { return false; }
  bool Stateless() const override { return true; }
};

template <class Made>
class Factory final : public SingleCodecFactory {
 public:
  std::unique_ptr<Codec> Make(const ShardInfo&) const override { return std::make_unique<Made>(); }
};

template <class... Codecs>
CodecChain Chain() {
  return CodecChain({std::make_shared<const Factory<Codecs>>()...}, ShardInfo{});
}

// Returns the encoded bytes of rows [first, first + count).
std::vector<std::byte> SliceOf(const Parts& parts, std::uint64_t first, std::uint64_t count) {
  std::vector<std::byte> bytes;
  for (const Part& part : parts.parts) {
    if (part.whole && first != 0) continue;
    const std::byte* start = part.data + (part.whole ? 0 : part.BytesFor(first));
    bytes.insert(bytes.end(), start, start + part.BytesFor(count));
  }
  return bytes;
}

// Checks the laws of codecs: Layout describes exactly what Encode returns, and slices of any sizes, in
// any order, decode to the same dense values.
void CheckLaws(CodecChain chain, const std::vector<float>& values,
               const std::vector<float>& expected, Random& random) {
  const std::uint64_t elements = values.size();
  const Parts layout = chain.Layout(elements);
  Parts parts = Parts::Dense(elements, values.data(), nullptr);
  chain.Encode(parts);
  CHECK_EQ(parts.rows, layout.rows);
  CHECK_EQ(parts.parts.size(), layout.parts.size());
  for (std::size_t i = 0; i < parts.parts.size(); ++i) {
    CHECK_EQ(parts.parts[i].name, layout.parts[i].name);
    CHECK_EQ(parts.parts[i].bits, layout.parts[i].bits);
    CHECK_EQ(parts.parts[i].BytesFor(parts.rows), layout.parts[i].BytesFor(layout.rows));
  }
  std::vector<float> out(elements, 0.0f);
  std::uint64_t bytes = 0;
  for (std::uint64_t first = 0; first < parts.rows;) {
    const std::uint64_t count = std::min(Between(random, 1, 4) * 8, parts.rows - first);
    std::vector<std::byte> slice = SliceOf(parts, first, count);
    CHECK_EQ(slice.size(), layout.SliceBytes(first, count));
    bytes += slice.size();
    std::vector<std::byte> shifted(slice.size() + 1);  // payloads need not be aligned
    std::copy(slice.begin(), slice.end(), shifted.begin() + 1);
    const char* reason = chain.DecodeInto(Bytes(shifted).subspan(1), elements, first, count,
                                          parts.rows, false, out.data());
    CHECK(reason == nullptr);
    first += count;
  }
  CHECK_EQ(bytes, layout.SliceBytes(0, layout.rows));
  CHECK(out == expected);
}

TEST(LayoutEqualsTheEncodingAndSlicesDecode) {
  check::ForSeeds(50, [](std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(Between(random, 1, 100));
    for (float& x : values) x = 2.0f * (static_cast<float>(Between(random, 0, 200)) - 100.0f);
    CheckLaws(CodecChain(), values, values, random);
    CheckLaws(Chain<Scaled>(), values, values, random);
    std::vector<float> kept(values.size(), 0.0f);
    for (std::size_t i = 0; i < kept.size(); i += 3) kept[i] = values[i];
    CheckLaws(Chain<EveryThird>(), values, kept, random);
    CheckLaws(Chain<EveryThird, Scaled>(), values, kept, random);
  });
}

TEST(ChainsSurviveHolesIfAllCodecsDo) {
  CHECK(CodecChain().Stateless() && CodecChain().SurvivesHoles());
  CHECK(Chain<Scaled>().Stateless() && !Chain<Scaled>().SurvivesHoles());
  CHECK(!Chain<EveryThird>().Stateless() && Chain<EveryThird>().SurvivesHoles());
  CHECK((!Chain<Scaled, EveryThird>().Stateless()));
  CHECK((!Chain<Scaled, EveryThird>().SurvivesHoles()));
}

TEST(WholePartsAreSentInTheFirstSlice) {
  const Parts layout = Chain<Scaled>().Layout(100);
  CHECK_EQ(layout.SliceBytes(0, 40), 44u);
  CHECK_EQ(layout.SliceBytes(40, 60), 60u);
  const Part bits{.name = "mask", .bits = 3};
  CHECK_EQ(bits.BytesFor(8), 3u);
  CHECK_EQ(bits.BytesFor(9), 4u);
}

TEST(DecodingAddsOrOverwrites) {
  const std::vector<float> in = {1, 2, 3};
  std::vector<float> out = {10, 20, 30, 40};
  const CodecChain dense;
  CHECK(dense.DecodeInto(AsBytes(in), 4, 1, 3, 4, false, out.data()) == nullptr);
  CHECK((out == std::vector<float>{10, 21, 32, 43}));
  CHECK(dense.DecodeInto(AsBytes(in), 4, 0, 3, 4, true, out.data()) == nullptr);
  CHECK((out == std::vector<float>{1, 2, 3, 43}));
}

TEST(InvalidSlicesAreRefused) {
  const std::vector<float> in = {1, 2, 3};
  std::vector<float> out(4, 0.0f);
  const CodecChain dense;
  const auto reason = [&](std::uint64_t first, std::uint64_t rows, std::uint64_t total) {
    const char* said = dense.DecodeInto(AsBytes(in), 4, first, rows, total, false, out.data());
    return std::string(said == nullptr ? "" : said);
  };
  CHECK_EQ(reason(0, 4, 4), "slice of the wrong size");
  CHECK_EQ(reason(0, 3, 5), "more rows than the codec makes");
  CHECK_EQ(reason(2, 3, 4), "rows out of range");
  CHECK((out == std::vector<float>(4, 0.0f)));

  // An index beyond the shard.
  std::vector<std::byte> slice(8);
  const std::uint32_t beyond = 4;
  std::memcpy(slice.data() + 4, &beyond, sizeof beyond);
  const char* said =
      Chain<EveryThird>().DecodeInto(slice, 4, 0, 1, 2, false, out.data());
  CHECK_EQ(std::string(said == nullptr ? "" : said), "index out of range");
}

TEST(ASliceWithoutRowsIsValid) {
  std::vector<float> out(4, 5.0f);
  CHECK(Chain<EveryThird>().DecodeInto({}, 4, 0, 0, 0, false, out.data()) == nullptr);
  CHECK(CodecChain().DecodeInto({}, 4, 0, 0, 4, true, out.data()) == nullptr);
  CHECK((out == std::vector<float>(4, 5.0f)));
}

// A cast to half the width, with a part that is in every slice.
class Halved final : public Codec {
 public:
  void Layout(Parts& parts) const override {
    parts.Find("values")->bits /= 2;
    parts.parts.push_back(
        {.name = "width", .bits = 8, .whole = true, .in_every_slice = true, .items = 1});
  }
  void Encode(Parts& parts) override { Layout(parts); }
  void Decode(Parts& parts) const override { (void)parts; }
  Stage stage() const override { return Stage::kCast; }
};

// A packed part: of every chunk of 16 values the first and their number, in four bytes. With it, a byte
// per row, so that both kinds of parts are cut alike.
class FirstOfChunk final : public Codec {
 public:
  static constexpr std::uint64_t kSpan = 16;

  void Layout(Parts& parts) const override {
    parts.parts = {{.name = "rows", .bits = 8}, {.name = "chunks", .bits = 32, .span = kSpan}};
  }
  void Encode(Parts& parts) override {
    const auto* in = reinterpret_cast<const float*>(parts.Find("values")->data);
    Layout(parts);
    std::byte* rows = parts.Allocate(parts.rows);
    std::byte* chunks = parts.Allocate(parts.parts[1].BytesFor(parts.rows));
    for (std::uint64_t i = 0; i < parts.rows; ++i) {
      rows[i] = std::byte{1};
      if (i % kSpan == 0) std::memcpy(chunks + i / kSpan * sizeof *in, in + i, sizeof *in);
    }
    parts.parts[0].data = rows;
    parts.parts[1].data = chunks;
  }
  void Decode(Parts& parts) const override {
    auto* out = reinterpret_cast<float*>(parts.Allocate(parts.rows * sizeof(float)));
    for (std::uint64_t i = 0; i < parts.rows; ++i) {
      CHECK(parts.parts[0].data[i] == std::byte{1});
      std::memcpy(out + i, parts.parts[1].data + i / kSpan * sizeof *out, sizeof *out);
    }
    parts.parts = {{.name = "values", .data = reinterpret_cast<std::byte*>(out)}};
  }
};

TEST(PackedPartsAreCutBetweenChunks) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    std::vector<float> values(Between(random, 1, 100));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    CodecChain chain = Chain<FirstOfChunk>();
    Parts parts = Parts::Dense(values.size(), values.data(), nullptr);
    chain.Encode(parts);
    CHECK_EQ(parts.Granule(), 16u);
    CHECK_EQ(parts.RowBits(), 10.0);
    CHECK_EQ(parts.RowsIn(1), 16u);
    CHECK_EQ(parts.RowsIn(59), 32u);  // 20 bytes per chunk
    CHECK_EQ(parts.SliceBytes(0, parts.rows), values.size() + 4 * ((values.size() + 15) / 16));
    std::vector<float> out(values.size(), 0.0f);
    for (std::uint64_t first = 0; first < parts.rows;) {
      const std::uint64_t count = std::min(16 * Between(random, 1, 3), parts.rows - first);
      const std::vector<std::byte> slice = SliceOf(parts, first, count);
      const auto decode = [&](std::uint64_t at) {
        const char* reason = chain.DecodeInto(slice, values.size(), at, count, parts.rows, true, out.data());
        return std::string(reason == nullptr ? "" : reason);
      };
      CHECK_EQ(decode(first), "");
      CHECK_EQ(decode(first + 8), "slice that begins within a chunk");
      if (first > 0 && first + count == parts.rows && count % 16 != 0) {
        CHECK_EQ(decode(first - 16), "slice that ends within a chunk");
      }
      first += count;
    }
    for (std::size_t i = 0; i < values.size(); ++i) CHECK_EQ(out[i], values[i / 16 * 16]);
  });
}

TEST(CastsFollowSelectionsInAnyOrder) {
  // EveryThird adds indices; if it were second, they would follow the part of Halved.
  const Parts before = Chain<Halved, EveryThird>().Layout(30);
  const Parts after = Chain<EveryThird, Halved>().Layout(30);
  for (const Parts* parts : {&before, &after}) {
    CHECK_EQ(parts->rows, 10u);
    CHECK_EQ(parts->parts[1].name, "indices");
    CHECK_EQ(parts->RowBits(), 48u);
  }
  CHECK_EQ(before.SliceBytes(0, 2), 13u);
  CHECK_EQ(before.SliceBytes(8, 2), 13u);
}

TEST(BySizeSelectsByTheBound) {
  const BySizeFactory by_size(100, {std::make_shared<const Factory<Scaled>>()},
                              {std::make_shared<const Factory<EveryThird>>()});
  for (const std::uint32_t elements : {99u, 100u, 101u}) {
    Codecs codecs;
    by_size.AddTo(codecs, ShardInfo{.elements = elements});
    CHECK_EQ(codecs.size(), 1u);
    const Codec& codec = *codecs.front();
    Parts parts = Parts::Dense(elements, nullptr, nullptr);
    codec.Layout(parts);
    CHECK_EQ(parts.Find("indices") != nullptr, elements >= 100);
    CHECK_EQ(codec.Stateless(), elements < 100);
    CHECK_EQ(codec.SurvivesHoles(), elements >= 100);
    CHECK(codec.stage() == Codec::Stage::kSelect);
  }
}

// A BySize with several codecs equals these codecs in the order of their stages; one without codecs
// leaves values unchanged.
TEST(BySizeIsPartOfItsChain) {
  const auto scaled = std::make_shared<const Factory<Scaled>>();
  const auto third = std::make_shared<const Factory<EveryThird>>();
  const auto both = std::make_shared<BySizeFactory>(10, CodecChain::Factories{},
                                                    CodecChain::Factories{scaled, third});
  const CodecChain chosen({both}, {.elements = 30}), plain({scaled, third}, {.elements = 30});
  CHECK_EQ(chosen.size(), 2u);
  CHECK_EQ(chosen.Layout(30).rows, plain.Layout(30).rows);
  CHECK_EQ(chosen.Layout(30).RowBits(), plain.Layout(30).RowBits());
  CodecChain nothing({both}, {.elements = 9});
  CHECK(!nothing.Dense() && nothing.Stateless() && nothing.SurvivesHoles() && nothing.FixedSize());
  const Buffer values(9, 2.5f);
  Parts parts = Parts::Dense(9, values.data(), nullptr);
  nothing.Encode(parts);
  CHECK_EQ(CodecChain::Gather(parts), values);
}

TEST(PackedBitsAreLittleEndian) {
  std::byte three[2];
  const std::uint32_t small[] = {5, 1, 7};
  PackBits(small, 3, 3, three);
  CHECK_EQ(std::to_integer<int>(three[0]), 5 + (1 << 3) + (3 << 6));
  CHECK_EQ(std::to_integer<int>(three[1]), 1);
  check::ForSeeds(50, [](std::uint64_t seed) {
    Random random(seed);
    const auto bits = static_cast<std::uint32_t>(Between(random, 1, 32));
    std::vector<std::uint32_t> numbers(Between(random, 0, 200)), back(numbers.size());
    for (std::uint32_t& number : numbers) {
      number = static_cast<std::uint32_t>(random() & ((std::uint64_t{1} << bits) - 1));
    }
    std::vector<std::byte> bytes((numbers.size() * bits + 7) / 8);
    PackBits(numbers.data(), numbers.size(), bits, bytes.data());
    UnpackBits(bytes.data(), numbers.size(), bits, back.data());
    CHECK(back == numbers);
  });
}

}  // namespace
}  // namespace geomx
