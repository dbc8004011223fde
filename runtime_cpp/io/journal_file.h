// The file of a node's journal (core/recorded_node.h): records behind each other, each with checksums.
//
//     file    0  magic "GMXJRNL1"                       8  records
//     record  0  bytes of body, 4  of payload           8  CRC-32C of both   12  CRC-32C of these 12 bytes
//            16  body, payload
//
// docs/journal.md has the records. A process that is killed leaves at worst a last record that is cut
// short: it is dropped, as nothing that depended on it had left. Anything else that is not as it was
// written is an error, and nothing is taken from such a file. One process at a time has it open (flock).
// What was committed is in the kernel's memory, which outlives the process and not the machine.
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
  // Opens the file, and makes it if there is none. Throws JournalError if it cannot be had, another
  // process has it, or it does not begin as journals do.
  explicit JournalFile(std::string path);

  const std::string& path() const { return path_; }
  // What its first record holds; nothing of a new journal.
  const std::optional<JournalBegin>& begin() const { return begin_; }

  // Reads all records, in order, and drops the last one if it is cut short. Throws JournalError if one
  // is damaged. To be called before anything is added, once.
  using Visit = std::function<void(std::span<const std::byte> body, Payload payload)>;
  void Read(const Visit& visit);

  void Add(std::span<const std::byte> body, const Payload& payload) override;
  void Commit() override;
  std::uint64_t size() const { return size_; }  // bytes, with what is not committed

 private:
  struct Record {
    std::vector<std::byte> body;
    Payload payload;
  };
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Piece {  // waits to be written: of the small bytes, or of a payload
    std::size_t begin = 0, end = 0;
    Bytes bytes;
  };

  std::optional<Record> ReadRecord(std::FILE* file);
  [[noreturn]] void Damaged(const std::string& what) const;
  [[noreturn]] void Unwritable(int error) const;

  std::string path_;
  Fd fd_;
  std::optional<JournalBegin> begin_;
  std::uint64_t good_ = 0;  // bytes up to the end of the last whole record, while it is read
  std::uint64_t size_ = 0;
  std::vector<std::byte> small_;    // heads, bodies and short payloads that wait to be written
  std::vector<Piece> pieces_;
  std::vector<Payload> payloads_;   // whose memory they are in
  std::size_t pending_bytes_ = 0;
};

}  // namespace geomx::io
