// Reassembly of slices: any order, holes, duplicates, late slices, and refusals.
#include "core/inbox.h"

#include <algorithm>
#include <cstring>

#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;
using Outcome = Inbox::Outcome;

struct Piece {
  Header header;
  Payload payload;
};

// Divides `value` into blocks of `rows`, the first `reliable` of which are on channel 0.
std::vector<Piece> Cut(const Buffer& value, std::uint32_t rows, std::uint32_t reliable, Round round,
                       Kind kind = Kind::kPush) {
  std::vector<Piece> pieces;
  const auto elements = static_cast<std::uint32_t>(value.size());
  const std::uint32_t slices = (elements + rows - 1) / rows;
  for (std::uint32_t i = 0; i < slices; ++i) {
    Header header;
    header.kind = kind;
    header.merge_count = 1;
    header.round = round;
    header.shard_elements = header.total_rows = elements;
    header.first_row = i * rows;
    header.rows = std::min(rows, elements - header.first_row);
    header.slice = i;
    header.slices = slices;
    header.reliable = std::min(reliable, slices);
    header.channel = i < reliable ? 0 : 1;
    header.payload_bytes = header.rows * static_cast<std::uint32_t>(sizeof(float));
    const auto* data = reinterpret_cast<const std::byte*>(value.data() + header.first_row);
    pieces.push_back({header, Payload::Copy({data, header.rows * sizeof(float)})});
  }
  return pieces;
}

Buffer Ramp(std::size_t elements, float scale = 1) {
  Buffer value(elements);
  for (std::size_t i = 0; i < elements; ++i) value[i] = scale * static_cast<float>(i + 1);
  return value;
}

Outcome Give(Inbox& inbox, const Piece& piece) {
  std::string error;
  const Outcome outcome = inbox.Accept(piece.header, piece.payload, CodecChain(), error);
  CHECK_EQ(outcome == Outcome::kError, !error.empty());
  return outcome;
}

// What a connection leaves behind that ends in the middle of a message.
void Begin(Inbox& inbox, const Header& header) {
  if (const auto room = inbox.Room(header)) std::memset(room.get(), 0x7f, header.payload_bytes / 2 + 1);
}

// The piece as a driver has received it in its place.
Piece InPlace(const Piece& piece, const std::shared_ptr<std::byte>& room) {
  const Bytes bytes = piece.payload.pieces()[0];
  std::memcpy(room.get(), bytes.data(), bytes.size());
  return {piece.header, Payload::View({room.get(), bytes.size()}, room)};
}

// Receives a piece as a driver does: in its place, if it has one; or it begins to, and the piece comes
// by another connection.
Outcome Receive(Random& random, Inbox& inbox, const Piece& piece) {
  if (check::Chance(random, 0.3)) Begin(inbox, piece.header);
  const auto room = check::Chance(random, 0.7) ? inbox.Room(piece.header) : nullptr;
  if (!room || piece.payload.size() == 0) return Give(inbox, piece);
  return Give(inbox, InPlace(piece, room));
}

template <class T>
void Shuffle(Random& random, std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[Between(random, 0, i - 1)]);
  }
}

TEST(SlicesInAnyOrderGiveTheValue) {
  check::ForSeeds(100, [](std::uint64_t seed) {
    Random random(seed);
    Inbox inbox;
    const std::size_t elements = Between(random, 1, 50);
    for (Round round = 1; round <= 4; ++round) {
      const Buffer value = Ramp(elements, static_cast<float>(round));
      auto pieces = Cut(value, static_cast<std::uint32_t>(Between(random, 1, 9)),
                        static_cast<std::uint32_t>(Between(random, 1, 50)), round);
      Shuffle(random, pieces);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Outcome outcome = Receive(random, inbox, pieces[i]);
        if (i + 1 == pieces.size()) {
          CHECK(outcome == Outcome::kComplete);
        } else {
          CHECK(outcome == Outcome::kPartial || outcome == Outcome::kReliable);
          if (Between(random, 0, 3) == 0) CHECK(Receive(random, inbox, pieces[i]) == Outcome::kRefused);
        }
      }
      CHECK(inbox.open());
      CHECK(inbox.Close() == value);
      CHECK(!inbox.open());
    }
    CHECK_EQ(inbox.stats().missing, 0u);
    CHECK_EQ(inbox.stats().late, 0u);
  });
}
// Rounds of one flow, some of which stay in their messages; those with best-effort slices cannot.
TEST(BorrowedRowsAreThoseOfTheValue) {
  check::ForSeeds(100, [](std::uint64_t seed) {
    Random random(seed);
    Inbox inbox;
    const std::size_t elements = Between(random, 1, 50);
    for (Round round = 1; round <= 6; ++round) {
      const Buffer value = Ramp(elements, static_cast<float>(round));
      const bool borrow = check::Chance(random, 0.7);
      const auto rows = static_cast<std::uint32_t>(Between(random, 1, 9));
      const std::uint32_t reliable = check::Chance(random, 0.7) ? 50 : 1;
      auto pieces = Cut(value, rows, reliable, round, Kind::kValue);
      Shuffle(random, pieces);
      for (const Piece& piece : pieces) {
        std::string error;
        inbox.Accept(piece.header, piece.payload, CodecChain(), error, {.borrow = borrow});
        CHECK_EQ(error, "");
      }
      const bool whole = pieces.front().header.reliable == pieces.front().header.slices;
      CHECK_EQ(inbox.borrowed(), borrow && whole);
      Buffer got = inbox.Close();
      if (inbox.borrowed()) {
        CHECK(got.empty());
        got.assign(elements, 0.0f);
        for (const BorrowedRows& each : inbox.TakeBorrowed()) {
          const Bytes bytes = each.payload.pieces()[0];
          std::memcpy(got.data() + each.first_row, bytes.data(), bytes.size());
        }
      }
      CHECK(got == value);
    }
  });
}

TEST(ValuesAreReceivedInTheirPlace) {
  Inbox inbox;
  const auto first = Cut(Ramp(9), 3, 9, 1), second = Cut(Ramp(9, 2), 3, 9, 2);
  CHECK(inbox.Room(first[0].header) == nullptr);  // nothing is known of the flow yet
  Give(inbox, first[0]);
  const auto after = inbox.Room(first[2].header), room = inbox.Room(first[1].header);
  CHECK(after.get() == room.get() + first[1].payload.size());
  CHECK(inbox.Room(first[0].header) == nullptr);   // it is here
  CHECK(inbox.Room(second[0].header) == nullptr);  // its round is not the next one yet
  Give(inbox, InPlace(first[1], room));
  Give(inbox, first[2]);
  const Buffer value = inbox.Close();
  CHECK(value == Ramp(9));
  CHECK(reinterpret_cast<const std::byte*>(value.data() + 3) == room.get());
  for (const auto change : {&Header::total_rows, &Header::payload_bytes, &Header::shard_elements}) {
    Header wrong = second[0].header;
    ++(wrong.*change);
    CHECK(inbox.Room(wrong) == nullptr);
  }
  const auto next = inbox.Room(second[1].header);
  CHECK(next != nullptr);
  for (const Piece& piece : second) Give(inbox, piece);  // the peer has sent this one twice
  const Buffer same = inbox.Close();
  std::memset(next.get(), 0x7f, second[1].payload.size());
  CHECK(same == Ramp(9, 2));
  const auto last = inbox.Room(Cut(Ramp(9), 3, 9, 3)[2].header);
  CHECK(last != nullptr);
  inbox = {};  // its peer is lost
  std::memset(last.get(), 0x7f, second[2].payload.size());
  std::memset(next.get(), 0x7f, second[1].payload.size());
  CHECK(value == Ramp(9));
}

TEST(HolesAreZero) {
  Inbox inbox;
  const auto pieces = Cut(Ramp(9), 3, 1, 1);
  CHECK(Give(inbox, pieces[2]) == Outcome::kPartial);
  CHECK(Give(inbox, pieces[0]) == Outcome::kReliable);
  CHECK((inbox.Close() == Buffer{1, 2, 3, 0, 0, 0, 7, 8, 9}));
  CHECK_EQ(inbox.stats().missing, 1u);
}

// Between two rounds, a late slice is kept for the next.
TEST(LateSliceIsMergedOnceIntoTheNextRound) {
  Inbox inbox;
  const auto first = Cut(Ramp(4), 2, 1, 1);
  CHECK(Give(inbox, first[0]) == Outcome::kReliable);
  CHECK((inbox.Close() == Buffer{1, 2, 0, 0}));
  CHECK(Give(inbox, first[1]) == Outcome::kLate);
  CHECK(Give(inbox, first[1]) == Outcome::kRefused);
  for (const Piece& piece : Cut(Ramp(4, 10), 2, 2, 2)) Give(inbox, piece);
  CHECK(Give(inbox, first[1]) == Outcome::kRefused);
  CHECK((inbox.Close() == Buffer{10, 20, 33, 44}));
  CHECK_EQ(inbox.stats().late, 1u);
}

// While the next round is open, for any order of arrival, and on any channel.
TEST(LateSliceIsMergedWhileTheNextRoundIsOpen) {
  for (const std::uint32_t reliable : {1u, 2u}) {
    for (const std::size_t before : {0u, 1u}) {  // number of slices of round 2 that have arrived
      Inbox inbox;
      const auto first = Cut(Ramp(4), 2, 1, 1), second = Cut(Ramp(4, 10), 2, reliable, 2);
      Give(inbox, first[0]);
      inbox.Close();
      Give(inbox, second[before]);
      CHECK(Give(inbox, first[1]) == Outcome::kLate);
      CHECK(Give(inbox, first[1]) == Outcome::kRefused);
      CHECK(Give(inbox, second[1 - before]) == Outcome::kComplete);
      CHECK((inbox.Close() == Buffer{10, 20, 33, 44}));
    }
  }
}

// The sender may have left out numbers, because other senders' rounds went on without it.
TEST(ALateSliceIsMergedIntoTheNextRoundOfItsFlowWhateverItsNumber) {
  for (const bool scattered : {false, true}) {
    for (const bool between : {false, true}) {  // the slice arrives between two rounds
      const auto give = [scattered](Inbox& inbox, const Piece& piece) {
        std::string error;
        return inbox.Accept(piece.header, piece.payload, CodecChain(), error, {.scattered = scattered});
      };
      Inbox inbox;
      const auto first = Cut(Ramp(4), 2, 1, 1), later = Cut(Ramp(4, 10), 2, 2, 4);
      give(inbox, first[0]);
      inbox.Close();
      if (between) CHECK(give(inbox, first[1]) == Outcome::kLate);
      give(inbox, later[0]);
      CHECK(between || give(inbox, first[1]) == (scattered ? Outcome::kRefused : Outcome::kLate));
      give(inbox, later[1]);
      CHECK((inbox.Close() == (scattered ? Buffer{10, 20, 30, 40} : Buffer{10, 20, 33, 44})));
    }
  }
}

// A sender that begins anew uses the number of its last round again.
TEST(BestEffortSlicesFromBeforeABeginningAreRefused) {
  Inbox inbox;
  const auto before = Cut(Ramp(4), 2, 1, 5), again = Cut(Ramp(4, 10), 2, 1, 5);
  Give(inbox, before[0]);
  inbox.Close();
  inbox.BeginAnew();
  CHECK(Give(inbox, before[1]) == Outcome::kRefused);
  CHECK(!inbox.open());
  CHECK(Give(inbox, again[0]) == Outcome::kReliable);
  CHECK(Give(inbox, again[1]) == Outcome::kComplete);
  CHECK(inbox.Close() == Ramp(4, 10));
}

TEST(NothingIsMergedTwoRoundsLate) {
  Inbox inbox;
  const auto first = Cut(Ramp(4), 2, 1, 1);
  Give(inbox, first[0]);
  inbox.Close();
  for (const Piece& piece : Cut(Ramp(4, 10), 2, 2, 2)) Give(inbox, piece);
  inbox.Close();
  CHECK(Give(inbox, first[1]) == Outcome::kRefused);  // round 2 is complete
  const auto third = Cut(Ramp(4, 100), 2, 1, 3);
  Give(inbox, third[0]);
  CHECK((inbox.Close() == Buffer{100, 200, 0, 0}));
  const auto fourth = Cut(Ramp(4, 1000), 2, 1, 4);
  Give(inbox, fourth[0]);
  CHECK(Give(inbox, first[1]) == Outcome::kRefused);  // round 4 is open, and may merge slices of 3 only
  CHECK(Give(inbox, third[1]) == Outcome::kLate);
  Give(inbox, fourth[1]);
  CHECK((inbox.Close() == Buffer{1000, 2000, 3300, 4400}));
  CHECK_EQ(inbox.stats().late, 1u);
}

TEST(ValuesAreNeverMergedLate) {
  Inbox inbox;
  const auto first = Cut(Ramp(4), 2, 1, 1, Kind::kValue);
  Give(inbox, first[0]);
  inbox.Close();
  CHECK(Give(inbox, first[1]) == Outcome::kRefused);
  const auto second = Cut(Ramp(4, 10), 2, 2, 2, Kind::kValue);
  Give(inbox, second[0]);
  CHECK(Give(inbox, first[1]) == Outcome::kRefused);
  Give(inbox, second[1]);
  CHECK(inbox.Close() == Ramp(4, 10));
}

// Lost rows are counted: with values of 1, the sum over all rounds is the number of rows that arrived
// in time or one round late.
TEST(EveryRowIsCountedOnce) {
  check::ForSeeds(200, [](std::uint64_t seed) {
    Random random(seed);
    Inbox inbox;
    const std::uint32_t rows = static_cast<std::uint32_t>(Between(random, 1, 4));
    const auto slices = static_cast<std::uint32_t>(Between(random, 2, 8));
    const Buffer ones(std::size_t{rows} * slices, 1.0f);
    std::vector<Piece> stragglers;
    std::uint64_t taken = 0, late = 0;
    double sum = 0;
    for (Round round = 1; round <= 6; ++round) {
      // The last round is reliable and complete, so that no slice is pending.
      const auto reliable = round == 6 ? slices : std::uint32_t(Between(random, 1, slices));
      std::vector<Piece> arriving = stragglers;
      stragglers.clear();
      for (const Piece& piece : Cut(ones, rows, reliable, round)) {
        if (piece.header.channel == 0 || check::Chance(random, 0.4)) {
          arriving.push_back(piece);
        } else {
          stragglers.push_back(piece);
        }
        if (check::Chance(random, 0.2)) stragglers.push_back(piece);
      }
      Shuffle(random, arriving);
      bool closable = false;
      Begin(inbox, Cut(ones, rows, slices, round).back().header);  // of a process that is replaced
      for (const Piece& piece : arriving) {
        const Outcome outcome = Receive(random, inbox, piece);
        late += outcome == Outcome::kLate;
        if (outcome == Outcome::kPartial || outcome == Outcome::kReliable ||
            outcome == Outcome::kComplete) {
          ++taken;
        }
        closable = closable || outcome == Outcome::kReliable || outcome == Outcome::kComplete;
      }
      CHECK(closable);
      for (const float x : inbox.Close()) sum += x;
    }
    CHECK_EQ(sum, static_cast<double>(rows * (taken + late)));
    CHECK_EQ(inbox.stats().late, late);
    CHECK_EQ(inbox.stats().missing + taken, std::uint64_t{6} * slices);
  });
}

TEST(InvalidSlicesAreErrors) {
  const auto error_of = [](auto change) {
    Inbox inbox;
    auto pieces = Cut(Ramp(8), 2, 2, 1);
    CHECK(Give(inbox, pieces[0]) == Outcome::kPartial);
    change(pieces[1]);
    std::string error;
    CHECK(inbox.Accept(pieces[1].header, pieces[1].payload, CodecChain(), error) ==
          Outcome::kError);
    return error;
  };
  CHECK_EQ(error_of([](Piece& p) { p.header.shard_elements = 9; }), "the shard changed its size");
  CHECK_EQ(error_of([](Piece& p) { p.header.round = 2; }),
           "a new round before the last one was complete");
  CHECK_EQ(error_of([](Piece& p) { p.header.slices = 5; }), "slices of one round disagree");
  CHECK_EQ(error_of([](Piece& p) { p.header.total_rows = 7; }), "slices of one round disagree");
  CHECK_EQ(error_of([](Piece& p) { p.header.reliable = 3; }), "slices of one round disagree");
  CHECK_EQ(error_of([](Piece& p) { p.header.rows = 1; }), "slice of the wrong size");
  CHECK_EQ(error_of([](Piece& p) { p.payload = Payload::Phantom(7); }), "slice of the wrong size");
  CHECK_EQ(error_of([](Piece& p) { p.payload = {}; }), "slice of the wrong size");

  Inbox inbox;
  std::string error;
  Piece first = Cut(Ramp(8), 8, 1, 1).front();
  first.header.total_rows = 9;
  CHECK(inbox.Accept(first.header, first.payload, CodecChain(), error) == Outcome::kError);
  CHECK_EQ(error, "more rows than the codec makes");
  first = Cut(Ramp(8), 8, 1, 1).front();
  first.header.slices = first.header.reliable = 10;
  CHECK(inbox.Accept(first.header, first.payload, CodecChain(), error) == Outcome::kError);
  CHECK_EQ(error, "more slices than rows");
  CHECK(!inbox.open());
}

// The slices of a round must cover the value exactly once.
TEST(SlicesThatOmitOrRepeatRowsAreErrors) {
  const std::string wrong = "slices that leave rows out or bring them twice";
  check::ForSeeds(200, [&](std::uint64_t seed) {
    Random random(seed);
    const auto rows = static_cast<std::uint32_t>(Between(random, 1, 4));
    const auto slices = static_cast<std::uint32_t>(Between(random, 2, 130));
    auto pieces = Cut(Ramp(std::size_t{rows} * slices), rows, slices, 1);
    Shuffle(random, pieces);  // the numbers of the slices are unchanged
    const auto place = [&](Piece& piece, std::uint32_t first_row) {
      piece.header.first_row = first_row;
    };
    Piece& changed = pieces[Between(random, 0, pieces.size() - 1)];
    switch (Between(random, 0, 2)) {
      case 0:  // at another's position: a gap and repeated rows, with the correct total
        place(changed, (changed.header.first_row + rows) % (rows * slices));
        break;
      case 1:  // shorter
        changed.header.rows -= 1;
        changed.payload = Payload::Copy(std::vector<std::byte>(changed.header.rows * sizeof(float)));
        break;
      default:  // two positions change, with the same sum
        if (slices < 4) {
          place(changed, (changed.header.first_row + rows) % (rows * slices));
          break;
        }
        for (Piece& piece : pieces) {
          if (piece.header.slice == 0) place(piece, rows);
          if (piece.header.slice == 3) place(piece, 2 * rows);
        }
    }
    Inbox inbox;
    std::string error;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Outcome outcome =
          inbox.Accept(pieces[i].header, pieces[i].payload, CodecChain(), error);
      CHECK(outcome == (i + 1 < pieces.size() ? Outcome::kPartial : Outcome::kError));
    }
    CHECK_EQ(error, wrong);
  });
  Inbox inbox;
  std::string error;
  Piece some = Cut(Ramp(8), 4, 2, 1).front();
  some.header.slices = some.header.reliable = 1;
  CHECK(inbox.Accept(some.header, some.payload, CodecChain(), error) == Outcome::kError);
  CHECK_EQ(error, "a slice of some rows that is all there is");
}

TEST(PhantomsAreCountedLikeBytes) {
  Inbox inbox;
  for (Piece piece : Cut(Ramp(9), 3, 3, 1)) {
    piece.payload = Payload::Phantom(piece.payload.size());
    Give(inbox, piece);
  }
  CHECK(inbox.Close().empty());
}

}  // namespace
}  // namespace geomx
