// The file of a node's journal (core/recorded_node.h): consecutive records, each with checksums.
//
//     file    0  magic "GMXJRNL1"                       8  records
//     record  0  bytes of body, 4  of payload           8  CRC-32C of both   12  CRC-32C of these 12 bytes
//            16  body, payload
//
// docs/journal.md describes the records. A killed process leaves at worst an incomplete last
// record, which is dropped, as no message that depended on it had left. Any other damage is an
// error, and nothing is read from such a file. One process at a time can open it (flock). Committed
// records are in the kernel's page cache: they survive the process, but not a crash of the machine.
//
// Not thread-safe.
#pragma once

#include <cstdio>
#include <functional>
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
  [[noreturn]] void Unwritable(int error) const;

  std::string path_;
  Fd fd_;
  std::optional<JournalBegin> begin_;
  std::uint64_t good_ = 0;  // bytes up to the end of the last complete record, while reading
  std::uint64_t size_ = 0;
  std::vector<std::byte> small_;    // heads, bodies and short payloads to be written
  std::vector<Piece> pieces_;
  std::vector<Payload> payloads_;   // that pieces point into
  std::size_t pending_bytes_ = 0;
};

}  // namespace geomx::io
