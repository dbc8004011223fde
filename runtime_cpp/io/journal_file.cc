#include "io/journal_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <utility>

#include "core/crc32c.h"

namespace geomx::io {
namespace {

constexpr char kJournalMagic[] = "GMXJRNL5";
constexpr std::size_t kMagicBytes = sizeof kJournalMagic - 1;
constexpr std::size_t kShort = 4096;  // bytes; payloads up to this size are copied
constexpr std::uint32_t kMostBody = 1u << 30;

struct Head {
  std::uint32_t body = 0, payload = 0, crc = 0, head_crc = 0;

  std::uint32_t OwnCrc() const {
    return Crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Head, head_crc)));
  }
};
static_assert(sizeof(Head) == 16);

bool ReadWhole(std::FILE* file, std::byte* into, std::size_t count) {
  return std::fread(into, 1, count, file) == count;
}

std::string NewName(const std::string& path) { return path + ".new"; }

// A stream with a descriptor of its own for the same open file, which a process that is started meanwhile
// does not inherit: the file would stay locked. Null, and errno, without a free descriptor.
std::FILE* StreamOf(int fd) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  std::FILE* const stream = own >= 0 ? fdopen(own, "rb") : nullptr;
  if (own >= 0 && stream == nullptr) {
    const int error = errno;
    close(own);
    errno = error;
  }
  return stream;
}

// Makes the entries of a file's folder durable. Returns an errno, or 0.
int SyncFolder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Fd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd && fsync(fd.get()) == 0 ? 0 : errno;
}

}  // namespace

JournalFile::JournalFile(std::string path) : path_(std::move(path)) {
  fd_ = Fd(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd_) throw JournalError("cannot open the journal " + path_ + ": " + ErrorText(errno));
  if (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw JournalError("the journal " + path_ + " is in use: its node runs already");
  }
  unlink(NewName(path_).c_str());  // of a process that was killed while it cut the file
  std::array<std::byte, kMagicBytes> magic;
  const ssize_t got = pread(fd_.get(), magic.data(), magic.size(), 0);
  if (got < 0) Unreadable(errno);
  const auto found = static_cast<std::size_t>(got);
  if (std::memcmp(magic.data(), kJournalMagic, found) != 0) {
    throw JournalError(path_ + " is no journal of this version of geomx: remove it, or take another folder");
  }
  const auto bytes = std::as_bytes(std::span(kJournalMagic, kMagicBytes));
  if (found < kMagicBytes) {
    if (pwrite(fd_.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
      Unwritable(errno);
    }
  }
  size_ = kMagicBytes;
  const std::unique_ptr<std::FILE, Closer> file(StreamOf(fd_.get()));
  if (!file) Unreadable(errno);
  std::fseek(file.get(), kMagicBytes, SEEK_SET);
  good_ = kMagicBytes;
  if (const auto first = ReadRecord(file.get())) {
    begin_ = JournalBegin::Read(first->body);
  } else if (ftruncate(fd_.get(), kMagicBytes) != 0) {
    Unwritable(errno);
  }
}

void JournalFile::Damaged(const std::string& what) const {
  throw JournalError("the journal " + path_ + " is damaged at byte " + std::to_string(good_) + " (" +
                     what + "): its node cannot continue from it");
}

void JournalFile::Unreadable(int error) const {
  throw JournalError("cannot read the journal " + path_ + ": " + ErrorText(error) +
                     (error == EMFILE ? ": raise the number of files that a process may open (ulimit -n)" : ""));
}

void JournalFile::Unwritable(int error) const {
  throw JournalError("cannot write the journal " + path_ + ": " + ErrorText(error) +
                     (error == ENOSPC ? ": make room there, or choose faults.durable=none" : ""));
}

// ---- reading -----------------------------------------------------------------------------------

// Returns nothing at the end of the file, and for an incomplete last record.
std::optional<JournalFile::Record> JournalFile::ReadRecord(std::FILE* file) {
  Head head;
  const auto bytes = std::as_writable_bytes(std::span(&head, 1));
  if (!ReadWhole(file, bytes.data(), bytes.size())) return std::nullopt;
  if (head.head_crc != head.OwnCrc()) Damaged("the checksum of a record's head is wrong");
  if (head.body == 0 || head.body > kMostBody || head.payload > kMaxPayloadBytes) {
    Damaged("a record has an impossible size");
  }
  Record record;
  record.body.resize(head.body);
  if (!ReadWhole(file, record.body.data(), head.body)) return std::nullopt;
  std::uint32_t crc = Crc32c(record.body);
  if (head.payload > 0) {
    const std::shared_ptr<std::byte[]> memory(new std::byte[head.payload]);
    if (!ReadWhole(file, memory.get(), head.payload)) return std::nullopt;
    const Bytes payload{memory.get(), head.payload};
    crc = Crc32c(payload, crc);
    record.payload = Payload::View(payload, memory);
  }
  if (crc != head.crc) Damaged("the checksum of a record is wrong");
  good_ += sizeof head + head.body + head.payload;
  return record;
}

void JournalFile::Read(const Visit& visit) {
  const std::unique_ptr<std::FILE, Closer> file(StreamOf(fd_.get()));
  if (!file) Unreadable(errno);
  std::setvbuf(file.get(), nullptr, _IOFBF, 1024 * 1024);
  std::fseek(file.get(), kMagicBytes, SEEK_SET);
  good_ = kMagicBytes;
  snapshot_ = 0;
  while (auto record = ReadRecord(file.get())) {
    if (record->body[0] == std::byte(RecordKind::kSnapshot)) snapshot_ = good_;
    visit(record->body, std::move(record->payload));
  }
  if (std::ferror(file.get()) != 0) Damaged("it cannot be read");
  if (begin_ && begin_->snapshot && snapshot_ == 0) Damaged("its snapshot is cut short");
  counted_from_ = snapshot_;
  if (ftruncate(fd_.get(), static_cast<off_t>(good_)) != 0) Unwritable(errno);
  size_ = good_;
}

// ---- writing -----------------------------------------------------------------------------------

void JournalFile::Add(std::span<const std::byte> body, const Payload& payload) {
  Head head{.body = static_cast<std::uint32_t>(body.size()),
            .payload = static_cast<std::uint32_t>(payload.size()),
            .crc = Crc32c(body)};
  for (const Bytes& piece : payload.pieces()) head.crc = Crc32c(piece, head.crc);
  head.head_crc = head.OwnCrc();
  const std::size_t begin = small_.size();
  const auto add = [this](Bytes bytes) { small_.insert(small_.end(), bytes.begin(), bytes.end()); };
  add(std::as_bytes(std::span(&head, 1)));
  add(body);
  const bool copied = payload.size() <= kShort;
  if (copied) {
    for (const Bytes& piece : payload.pieces()) add(piece);
  }
  if (!pieces_.empty() && pieces_.back().bytes.empty()) {
    pieces_.back().end = small_.size();
  } else {
    pieces_.push_back({begin, small_.size(), {}});
  }
  if (!copied) {
    for (const Bytes& piece : payload.pieces()) pieces_.push_back({0, 0, piece});
    payloads_.push_back(payload);
  }
  const std::size_t bytes = sizeof head + body.size() + payload.size();
  pending_bytes_ += bytes;
  size_ += bytes;
  if (body[0] == std::byte(RecordKind::kBegin)) begin_ = JournalBegin::Read(body);
}

// Writes all pending records, up to IOV_MAX pieces per system call; long payloads are not copied.
void JournalFile::Commit() {
  if (pieces_.empty()) return;
  std::vector<iovec> rest;
  for (const Piece& piece : pieces_) {
    const Bytes bytes = piece.bytes.empty()
                            ? Bytes(small_).subspan(piece.begin, piece.end - piece.begin)
                            : piece.bytes;
    rest.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
  }
  auto offset = static_cast<off_t>(size_ - pending_bytes_);
  for (std::size_t at = 0; at < rest.size();) {
    const int count = static_cast<int>(std::min<std::size_t>(rest.size() - at, IOV_MAX));
    const ssize_t written = pwritev(fd_.get(), rest.data() + at, count, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) Unwritable(written < 0 ? errno : ENOSPC);
    offset += written;
    for (auto left = static_cast<std::size_t>(written); left > 0;) {
      iovec& piece = rest[at];
      const std::size_t passed = std::min(left, piece.iov_len);
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + passed;
      piece.iov_len -= passed;
      left -= passed;
      if (piece.iov_len == 0) ++at;
    }
  }
  if (synced_ && fdatasync(fd_.get()) != 0) Unwritable(errno);
  small_.clear();
  pieces_.clear();
  payloads_.clear();
  pending_bytes_ = 0;
}

void JournalFile::set_synced(bool synced) {
  synced_ = synced;
  if (!synced_) return;
  if (const int error = SyncFolder(path_)) Unwritable(error);
}

// ---- cutting -----------------------------------------------------------------------------------

JournalFile::~JournalFile() {
  if (cutting()) PutOffCut();
}

JournalOut& JournalFile::BeginCut() {
  copied_from_ = size_;
  next_ = std::make_unique<JournalFile>(NewName(path_));
  JournalBegin begin = *begin_;
  begin.snapshot = true;
  begin.Write(*next_);
  return *next_;
}

void JournalFile::SyncCut() {
  next_->Commit();
  next_->snapshot_ = next_->size_;
  sync_ = std::async(std::launch::async, [fd = next_->fd_.get()] { return fsync(fd) == 0 ? 0 : errno; });
}

std::string JournalFile::TryFinishCut() {
  if (sync_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  Commit();
  try {
    if (const int error = sync_.get()) next_->Unwritable(error);
    next_->CopyTail(*this, copied_from_);
    if (synced_ && fdatasync(next_->fd_.get()) != 0) next_->Unwritable(errno);
    if (rename(next_->path_.c_str(), path_.c_str()) != 0) next_->Unwritable(errno);
  } catch (const JournalError& error) {
    PutOffCut();
    return error.what();
  }
  fd_ = std::move(next_->fd_);
  begin_ = next_->begin_;
  size_ = next_->size_;
  snapshot_ = counted_from_ = next_->snapshot_;
  next_.reset();
  // Until the new name is on the disk, the old file would be found there, without later records.
  if (const int error = SyncFolder(path_); error != 0 && synced_) Unwritable(error);
  return {};
}

void JournalFile::CopyTail(const JournalFile& old, std::uint64_t from) {
  std::vector<std::byte> bytes(1 << 20);
  while (from < old.size_) {
    const std::size_t most = std::min<std::uint64_t>(bytes.size(), old.size_ - from);
    const ssize_t got = pread(old.fd_.get(), bytes.data(), most, static_cast<off_t>(from));
    if (got <= 0) old.Unwritable(got < 0 ? errno : EIO);
    for (ssize_t done = 0; done < got;) {
      const ssize_t written = pwrite(fd_.get(), bytes.data() + done, static_cast<std::size_t>(got - done),
                                     static_cast<off_t>(size_));
      if (written <= 0) Unwritable(written < 0 ? errno : ENOSPC);
      done += written;
      size_ += static_cast<std::uint64_t>(written);
    }
    from += static_cast<std::uint64_t>(got);
  }
}

void JournalFile::PutOffCut() {
  if (sync_.valid()) sync_.wait();
  sync_ = {};
  if (next_) unlink(next_->path_.c_str());
  next_.reset();
  counted_from_ = size_;
}

}  // namespace geomx::io
