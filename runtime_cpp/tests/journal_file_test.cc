// The file of a journal (io/journal_file.h). After any truncation or damage, reading returns written
// records in order, or an error.
#include "io/journal_file.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/crc32c.h"
#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx::io {
namespace {

using Record = std::pair<std::string, std::string>;  // body, payload

std::string Text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "journal_test.XXXXXX").string();
    CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file() const { return path_ + "/node.journal"; }

 private:
  std::string path_;
};

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Store(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

std::vector<Record> ReadAll(JournalFile& journal) {
  std::vector<Record> records;
  journal.Read([&](std::span<const std::byte> body, Payload payload) {
    std::vector<std::byte> scratch;
    records.emplace_back(Text(body), Text(payload.Contiguous(scratch)));
  });
  return records;
}

// Short and long payloads, some in pieces.
std::vector<Record> WriteSome(const std::string& path, check::Random& random, int count) {
  JournalFile journal(path);
  std::vector<Record> records = ReadAll(journal);
  if (!journal.begin()) {
    JournalBegin{.name = "node", .address = "127.0.0.1:1"}.Write(journal);
    journal.Commit();
    records = {};
  }
  for (int i = 0; i < count; ++i) {
    std::string body(check::Between(random, 1, 40), static_cast<char>(RecordKind::kTimeout));
    std::string bytes(check::Chance(random, 0.3) ? check::Between(random, 0, 20'000) : 0, 'x');
    for (char& each : bytes) each = static_cast<char>(random());
    auto owner = std::make_shared<std::string>(bytes);
    const Bytes all = std::as_bytes(std::span(*owner));
    const std::size_t half = all.size() / 3;
    const Payload payload = Payload::View({all.first(half), all.subspan(half)}, owner);
    journal.Add(std::as_bytes(std::span(body)), payload);
    records.emplace_back(body, bytes);
    if (check::Chance(random, 0.3)) journal.Commit();
  }
  journal.Commit();
  return records;
}

}  // namespace

TEST(CrcsFollowTheStandard) {
  const std::string digits = "123456789";
  CHECK_EQ(Crc32c(std::as_bytes(std::span(digits))), 0xe3069283u);
  const std::vector<std::byte> zeros(32);
  CHECK_EQ(Crc32c(zeros), 0x8a9136aau);
  CHECK_EQ(Crc32c(Bytes(zeros).subspan(5), Crc32c(Bytes(zeros).first(5))), 0x8a9136aau);
}

TEST(JournalsContainCommittedRecords) {
  const Folder folder;
  check::Random random(1);
  WriteSome(folder.file(), random, 200);
  const auto written = WriteSome(folder.file(), random, 300);  // appended
  JournalFile journal(folder.file());
  CHECK(journal.begin().has_value());
  const auto read = ReadAll(journal);
  CHECK_EQ(read.size(), written.size());
  CHECK(read == written);
  bool refused = false;
  try {
    const JournalFile second(folder.file());
  } catch (const JournalError& error) {
    refused = std::string(error.what()).find("in use") != std::string::npos;
  }
  CHECK(refused);
}

// A killed process leaves a prefix of the file. Its complete records are read, and new ones appended.
TEST(TruncatedJournalsLoseTheLastRecord) {
  const Folder folder;
  check::Random random(2);
  WriteSome(folder.file(), random, 30);
  const std::string whole = Content(folder.file());
  std::vector<Record> all;
  {
    JournalFile journal(folder.file());
    all = ReadAll(journal);
  }
  std::size_t before = 0;
  for (std::size_t size = 0; size < whole.size(); size += 1 + size / 100) {
    Store(folder.file(), whole.substr(0, size));
    std::vector<Record> read;
    {
      JournalFile journal(folder.file());
      if (journal.begin()) read = ReadAll(journal);
    }
    CHECK(read.size() >= before && read.size() < all.size());
    before = read.size();
    CHECK(std::equal(read.begin(), read.end(), all.begin()));
    if (size % 7 != 0 || read.empty()) continue;
    const auto more = WriteSome(folder.file(), random, 3);
    JournalFile journal(folder.file());
    CHECK_EQ(more.size(), read.size() + 3);
    CHECK(ReadAll(journal) == more);
  }
}

TEST(DamagedJournalsAreRefused) {
  const Folder folder;
  check::Random random(3);
  WriteSome(folder.file(), random, 20);
  const std::string whole = Content(folder.file());
  for (std::size_t at = 0; at < whole.size(); at += 1 + at / 50) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << check::Between(random, 0, 7)));
    Store(folder.file(), damaged);
    std::string said;
    try {
      JournalFile journal(folder.file());
      ReadAll(journal);
    } catch (const JournalError& error) {
      said = error.what();
    }
    CHECK(said.find(folder.file()) != std::string::npos);
  }
}

// Runs, cuts and kills of a node's process: whatever moment a copy of its folder is taken at, and wherever
// the last write of each file ends, a new process reads the state and all that was committed.
TEST(JournalsThatAreCutLoseNothing) {
  int cuts = 0, torn = 0;
  check::ForSeeds(8, [&](std::uint64_t seed) {
    check::Random random(seed);
    const Folder folder;
    WriteSome(folder.file(), random, 3);
    JournalFile journal(folder.file());
    ReadAll(journal);
    journal.set_synced(seed % 4 == 0);
    journal.set_least(check::Between(random, 0, 3000));
    std::uint64_t state = 0;  // of a node that counts its calls
    const auto reread = [&](std::size_t lost) {
      const Folder copy;
      const std::string whole = Content(folder.file());
      Store(copy.file(), whole.substr(0, whole.size() - std::min(lost, whole.size())));
      if (check::Chance(random, 0.5)) Store(copy.file() + ".new", "GMXJRNL");  // begun, and not finished
      JournalFile again(copy.file());
      CHECK(!std::filesystem::exists(copy.file() + ".new"));
      std::uint64_t found = 0;
      std::string pieces;
      again.Read([&](std::span<const std::byte> body, const Payload& payload) {
        std::vector<std::byte> scratch;
        const auto kind = static_cast<RecordKind>(body[0]);
        if (kind == RecordKind::kState) pieces += Text(payload.Contiguous(scratch));
        if (kind == RecordKind::kSnapshot) found = std::stoull(pieces);
        if (kind == RecordKind::kResume) ++found;
      });
      return found;
    };
    for (int i = 0; i < 60; ++i) {
      const std::string call(check::Between(random, 1, 200), static_cast<char>(RecordKind::kResume));
      journal.Add(std::as_bytes(std::span(call)), {});
      journal.Commit();
      ++state;
      if (journal.cutting()) {
        const bool finish = check::Chance(random, 0.5);
        while (finish && journal.cutting()) CHECK_EQ(journal.TryFinishCut(), "");
      } else if (journal.long_enough()) {
        ++cuts;
        JournalOut& next = journal.BeginCut();
        const std::string text = std::to_string(state);
        for (std::size_t at = 0; at < text.size(); ++at) {
          const auto piece = std::make_shared<std::string>(text.substr(at, 1));
          next.Add(RecordWriter(RecordKind::kState).Put(at + 1 < text.size()).body(),
                   Payload::View(std::as_bytes(std::span(*piece)), piece));
        }
        next.Add(RecordWriter(RecordKind::kSnapshot).Put(Time{0}).Put(std::uint32_t{0}).body(), {});
        journal.SyncCut();
      }
      CHECK_EQ(reread(0), state);
      const std::size_t lost = check::Between(random, 1, 16 + call.size());  // of the last record
      if (check::Chance(random, 0.3)) {
        ++torn;
        CHECK_EQ(reread(lost), state - 1);
      }
    }
  });
  CHECK(cuts > 2 && torn > 2);
}

// A file is renamed when its snapshot is on the disk; one that ends in it is damaged, and said to be.
TEST(SnapshotsThatAreCutShortAreRefused) {
  const Folder folder;
  check::Random random(4);
  WriteSome(folder.file(), random, 3);
  {
    JournalFile journal(folder.file());
    ReadAll(journal);
    JournalOut& next = journal.BeginCut();
    next.Add(RecordWriter(RecordKind::kState).Put(false).body(), Payload::Copy(std::as_bytes(std::span("state"))));
    next.Add(RecordWriter(RecordKind::kSnapshot).Put(Time{0}).Put(std::uint32_t{0}).body(), {});
    journal.SyncCut();
    while (journal.cutting()) CHECK_EQ(journal.TryFinishCut(), "");
  }
  const std::string whole = Content(folder.file());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Store(folder.file(), whole.substr(0, size));
    std::string said;
    bool begun = false;
    try {
      JournalFile journal(folder.file());
      begun = journal.begin().has_value();
      if (begun) ReadAll(journal);
    } catch (const JournalError& error) {
      said = error.what();
    }
    CHECK_EQ(begun, said.find("its snapshot is cut short") != std::string::npos);
  }
}

// A disk that is too full for a snapshot leaves the long journal as it is.
TEST(AFullDiskPutsOffTheSnapshot) {
  const Folder folder;
  check::Random random(5);
  WriteSome(folder.file(), random, 20);
  const std::string whole = Content(folder.file());
  JournalFile journal(folder.file());
  ReadAll(journal);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  JournalOut& next = journal.BeginCut();
  const std::vector<std::byte> bytes(5000, std::byte{7});
  next.Add(RecordWriter(RecordKind::kState).Put(false).body(), Payload::Copy(bytes));
  bool refused = false;
  try {
    journal.SyncCut();
  } catch (const JournalError&) {
    refused = true;
    journal.PutOffCut();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(refused && !journal.cutting());
  CHECK(!std::filesystem::exists(folder.file() + ".new"));
  CHECK(Content(folder.file()) == whole);
}

// Reading takes a descriptor more.
TEST(AJournalThatCannotBeReadIsNamed) {
  const Folder folder;
  check::Random random(6);
  WriteSome(folder.file(), random, 3);
  JournalFile journal(folder.file());
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 1, .rlim_max = before.rlim_max};  // open descriptors stay open
  setrlimit(RLIMIT_NOFILE, &none);
  std::string said;
  try {
    ReadAll(journal);
  } catch (const JournalError& error) {
    said = error.what();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(said.starts_with("cannot read the journal " + folder.file() + ": Too many open files"));
  CHECK(ReadAll(journal).size() == 4);
}

// As on a full disk, a failed write is an error that names the file.
TEST(AFailedWriteNamesTheJournal) {
  const Folder folder;
  JournalFile journal(folder.file());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<std::byte> bytes(5000, std::byte{7});
  journal.Add(Bytes(bytes).first(20), Payload::Copy(bytes));
  std::string said;
  try {
    journal.Commit();
  } catch (const JournalError& error) {
    said = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(said.find("cannot write the journal " + folder.file()) != std::string::npos);
}

}  // namespace geomx::io
