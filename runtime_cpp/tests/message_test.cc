// The wire format: written messages can be read, and inconsistent ones are refused.
#include "core/message.h"

#include <cstring>

#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;

Header RandomHeader(Random& random) {
  Header header;
  header.kind = static_cast<Kind>(Between(random, 0, kKinds - 1));
  header.channel =
      IsTransfer(header.kind) ? static_cast<std::uint8_t>(Between(random, 0, kMaxChannel)) : 0;
  header.flags = static_cast<std::uint8_t>(Between(random, 0, kLast | kPlain));
  header.source = static_cast<NodeId>(random());
  header.key = static_cast<Key>(random());
  header.shard = static_cast<std::uint32_t>(random());
  header.round = static_cast<Round>(random());
  header.merge_count = static_cast<std::uint32_t>(Between(random, 1, 1000));
  header.priority = static_cast<std::int32_t>(random());
  header.shard_elements = static_cast<std::uint32_t>(Between(random, 1, 1 << 20));
  header.total_rows = static_cast<std::uint32_t>(Between(random, 0, header.shard_elements));
  header.first_row = static_cast<std::uint32_t>(Between(random, 0, header.total_rows));
  header.rows =
      static_cast<std::uint32_t>(Between(random, 0, header.total_rows - header.first_row));
  header.slices = static_cast<std::uint32_t>(Between(random, 1, 1000));
  header.slice = static_cast<std::uint32_t>(Between(random, 0, header.slices - 1));
  header.reliable = static_cast<std::uint32_t>(Between(random, 0, header.slices));
  header.server = static_cast<std::uint32_t>(random());
  header.offset = random() >> (64 - kOffsetBits);
  header.steps = static_cast<std::uint32_t>(random() >> (64 - kStepsBits));
  header.loss = check::Uniform(random, -10, 10);
  header.payload_bytes = static_cast<std::uint32_t>(Between(random, 0, kMaxPayloadBytes));
  return header;
}

Header Push() {
  Header header;
  header.kind = Kind::kPush;
  header.merge_count = 1;
  header.shard_elements = header.total_rows = 10;
  header.rows = 5;
  header.slices = header.reliable = 2;
  return header;
}

TEST(HeaderRoundTrip) {
  check::ForSeeds(2000, [](std::uint64_t seed) {
    Random random(seed);
    const Header header = RandomHeader(random);
    const WireHeader bytes = SerializeHeader(header);
    std::string error;
    const auto parsed = ParseHeader(bytes, error);
    CHECK_EQ(error, "");
    CHECK(parsed.has_value());
    if (!parsed) return;
    CHECK(SerializeHeader(*parsed) == bytes);
    CHECK_EQ(parsed->kind, header.kind);
    CHECK_EQ(parsed->priority, header.priority);
    CHECK_EQ(parsed->loss, header.loss);
    CHECK_EQ(parsed->offset, header.offset);
    CHECK_EQ(parsed->steps, header.steps);
    CHECK_EQ(parsed->payload_bytes, header.payload_bytes);
  });
}

TEST(HeaderFieldsAreLittleEndianAtFixedOffsets) {
  Header header = Push();
  header.source = 0x01020304;
  header.priority = -2;
  header.payload_bytes = 0x0a0b;
  const WireHeader bytes = SerializeHeader(header);
  CHECK_EQ(bytes.size(), 80u);
  CHECK(std::memcmp(bytes.data(), "GMX1", 4) == 0);
  const auto at = [&](std::size_t i) { return std::to_integer<int>(bytes[i]); };
  CHECK_EQ(at(4), kWireVersion);
  CHECK_EQ(at(5), static_cast<int>(Kind::kPush));
  CHECK_EQ(at(8), 4);
  CHECK_EQ(at(11), 1);
  CHECK_EQ(at(28), 0xfe);
  CHECK_EQ(at(31), 0xff);
  CHECK_EQ(at(32), 10);
  CHECK_EQ(at(72), 0x0b);
  CHECK_EQ(at(73), 0x0a);
  CHECK_EQ(at(76) + at(77) + at(78) + at(79), 0);
}

TEST(HeaderRefusesEachInconsistency) {
  const auto refused = [](const Header& header, const std::string& why) {
    std::string error;
    CHECK(!ParseHeader(SerializeHeader(header), error));
    CHECK(error.find(why) != std::string::npos);
    if (error.find(why) == std::string::npos) std::cerr << "  said: " << error << "\n";
  };
  std::string error;
  CHECK(ParseHeader(SerializeHeader(Push()), error).has_value());
  const auto with = [&](auto change, const std::string& why) {
    Header header = Push();
    change(header);
    refused(header, why);
  };
  with([](Header& h) { h.payload_bytes = kMaxPayloadBytes + 1; }, "payload too large");
  with([](Header& h) { h.channel = kMaxChannel + 1; }, "no such channel");
  with([](Header& h) { h.shard_elements = 0; }, "empty shard");
  with([](Header& h) { h.kind = Kind::kPullRequest, h.shard_elements = 0; }, "empty shard");
  with([](Header& h) { h.slices = h.reliable = 0; }, "slice number");
  with([](Header& h) { h.slice = 2; }, "slice number");
  with([](Header& h) { h.reliable = 3; }, "more reliable slices");
  with([](Header& h) { h.first_row = 6; }, "rows out of range");
  with([](Header& h) { h.rows = 11; }, "rows out of range");
  with([](Header& h) { h.first_row = UINT32_MAX, h.rows = 2; }, "rows out of range");
  with([](Header& h) { h.merge_count = 0; }, "stands for nobody");
  with([](Header& h) { h.kind = Kind::kBarrier, h.channel = 1; }, "control message off channel 0");
  with([](Header& h) { h.kind = Kind::kPullRequest, h.channel = 1; }, "off channel 0");

  const auto broken = [&](std::size_t at, std::uint8_t value, const std::string& why) {
    WireHeader bytes = SerializeHeader(Push());
    bytes[at] = static_cast<std::byte>(value);
    CHECK(!ParseHeader(bytes, error));
    CHECK(error.find(why) != std::string::npos);
  };
  broken(0, 'g', "not a geomx message");
  broken(4, 1, "wire version 1, this node speaks " + std::to_string(kWireVersion));
  broken(5, kKinds, "unknown message kind " + std::to_string(kKinds));
}

// Any bytes are either refused with a reason, or a header that can be written again.
TEST(HeaderFromAnyBytes) {
  check::ForSeeds(3000, [](std::uint64_t seed) {
    Random random(seed);
    WireHeader bytes = SerializeHeader(RandomHeader(random));
    for (std::uint64_t i = Between(random, 1, 4); i > 0; --i) {
      bytes[Between(random, 4, kHeaderBytes - 1)] = static_cast<std::byte>(random());
    }
    std::string error;
    const auto parsed = ParseHeader(bytes, error);
    CHECK_EQ(parsed.has_value(), error.empty());
    if (!parsed) return;
    const auto again = ParseHeader(SerializeHeader(*parsed), error);
    CHECK(again.has_value());
    if (IsTransfer(parsed->kind)) {
      CHECK(parsed->slice < parsed->slices);
      CHECK(std::uint64_t{parsed->first_row} + parsed->rows <= parsed->total_rows);
    }
  });
}

TEST(StringsRoundTripAndInvalidBytesAreRefused) {
  const std::string binary("\0\xff\n", 3);
  const std::vector<std::byte> packed = PackStrings({"", "hello", binary});
  const auto strings = UnpackStrings(packed, 3);
  CHECK(strings.has_value());
  CHECK(strings && (*strings)[0].empty() && (*strings)[1] == "hello" && (*strings)[2] == binary);
  CHECK(!UnpackStrings(packed, 2));
  CHECK(!UnpackStrings(packed, 4));
  for (std::size_t size = 0; size < packed.size(); ++size) {
    CHECK(!UnpackStrings(Bytes(packed).first(size), 3));
  }
  std::vector<std::byte> more = packed;
  more.push_back(std::byte{0});
  CHECK(!UnpackStrings(more, 3));
  CHECK(UnpackStrings({}, 0).has_value());
}

TEST(StringsFromAnyBytes) {
  check::ForSeeds(2000, [](std::uint64_t seed) {
    Random random(seed);
    std::vector<std::byte> bytes(Between(random, 0, 24));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(Between(random, 0, 3));
    const auto strings = UnpackStrings(bytes, 2);
    if (!strings) return;
    CHECK(PackStrings({(*strings)[0], (*strings)[1]}) == bytes);
  });
}

TEST(EveryKindHasAName) {
  for (std::uint8_t kind = 0; kind < kKinds; ++kind) {
    CHECK(std::strlen(KindName(static_cast<Kind>(kind))) > 0);
  }
}

}  // namespace
}  // namespace geomx
