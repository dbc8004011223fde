// The file of a node's journal (core/recorded_node.h): consecutive records, each with checksums.
//
//     file    0  magic "GMXJRNL5"                       8  records
//     record  0  bytes of body, 4  of payload           8  CRC-32C of both   12  CRC-32C of these 12 bytes
//            16  body, payload
//
// docs/journal.md describes the records. A killed process leaves at worst an incomplete last
// record, which is dropped, as no message that depended on it had left. Any other damage is an
// error, and nothing is read from such a file. One process at a time can open it (flock). Committed
// records are in the kernel's page cache, where they survive the process; with `synced`, they are on
// the disk, where they survive a crash of the machine.
//
// A file that has become long is replaced (cut): a new one, FILE.new, gets the first record and a
// snapshot of the node, is forced to the disk in the background, gets the records that were added
// meanwhile, and takes the old one's name. A crash at any moment leaves one whole file of that name.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/records.h"
#include "io/socket.h"

namespace geomx::io {

class JournalFile final : public JournalOut {
 public:
  // Opens the file, or creates it. Throws JournalError if it cannot be opened, another process has
  // it open, or it is not a journal.
  explicit JournalFile(std::string path);
  ~JournalFile() override;

  const std::string& path() const { return path_; }
  // The first record; nothing for a new journal.
  const std::optional<JournalBegin>& begin() const { return begin_; }

  // Reads all records, in order, and drops an incomplete last one. Throws JournalError if a record
  // is damaged. Call it once, before the first Add.
  using Visit = std::function<void(std::span<const std::byte> body, Payload payload)>;
  void Read(const Visit& visit);

  void Add(std::span<const std::byte> body, const Payload& payload) override;
  void Commit() override;
  std::uint64_t size() const { return size_; }  // bytes, uncommitted ones included

  // Whether committed records are forced to the disk, from now on. Throws JournalError if the name of the
  // file cannot be.
  void set_synced(bool synced);

  // ---- cutting ----
  // The file may grow by this many bytes, and by `kTimes` its snapshot, before it is cut.
  void set_least(std::uint64_t bytes) { least_ = bytes; }
  bool cutting() const { return next_ != nullptr; }
  bool long_enough() const { return may_cut_ && size_ - counted_from_ > std::max(least_, kTimes * snapshot_); }
  // Returns the output for the records of a snapshot. REQUIRES: begin(), !cutting(), all records are
  // committed.
  JournalOut& BeginCut();
  // All of them were added: they are forced to the disk in the background.
  void SyncCut();
  // Replaces the old file if that is done. Returns the reason if the new file cannot be written: the old
  // one goes on. REQUIRES: cutting(). Throws JournalError if records may be lost.
  std::string TryFinishCut();
  // The snapshot was not written: the file is cut when it has grown as much again, or never.
  void PutOffCut();
  void GiveUpCutting() {
    PutOffCut();
    may_cut_ = false;
  }

 private:
  struct Record {
    std::vector<std::byte> body;
    Payload payload;
  };
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Piece {  // to be written: part of `small_`, or a payload
    std::size_t begin = 0, end = 0;
    Bytes bytes;
  };

  std::optional<Record> ReadRecord(std::FILE* file);
  [[noreturn]] void Damaged(const std::string& what) const;
  [[noreturn]] void Unreadable(int error) const;
  [[noreturn]] void Unwritable(int error) const;
  void CopyTail(const JournalFile& old, std::uint64_t from);

  std::string path_;
  Fd fd_;
  std::optional<JournalBegin> begin_;
  std::uint64_t good_ = 0;  // bytes up to the end of the last complete record, while reading
  std::uint64_t size_ = 0;
  std::vector<std::byte> small_;    // heads, bodies and short payloads to be written
  std::vector<Piece> pieces_;
  std::vector<Payload> payloads_;   // that pieces point into
  std::size_t pending_bytes_ = 0;

  static constexpr std::uint64_t kTimes = 4;
  bool synced_ = false;
  bool may_cut_ = true;
  std::uint64_t least_ = 64 << 20;
  std::uint64_t snapshot_ = 0;         // bytes up to the end of the snapshot; 0: there is none
  std::uint64_t counted_from_ = 0;     // size from which growth counts
  std::unique_ptr<JournalFile> next_;  // which is to replace this one
  std::uint64_t copied_from_ = 0;      // size when the snapshot was begun
  std::future<int> sync_;              // of `next_`: errno
};

}  // namespace geomx::io
