#include "io/tcp.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace geomx::io {
namespace {

constexpr std::size_t kMaxPieces = 64;           // of one system call
constexpr std::size_t kKeptBlock = 1024 * 1024;  // larger payloads' memory is freed
constexpr std::size_t kSmallestBlock = 4096;
constexpr std::size_t kWorthPlacing = 16 * 1024;  // a smaller payload is copied faster than its place is found
constexpr std::size_t kLeastWrite = 16 * 1024;
constexpr std::size_t kAlone = 16 * 1024;  // more than a message without a link has

ssize_t SendPlain(int fd, std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

// ---- reading ---------------------------------------------------------------------------------

std::span<std::byte> FrameReader::Room() {
  if (filled_ < kFrameHead) return std::span(head_).subspan(filled_);
  return {payload_.get() + (filled_ - kFrameHead),
          kFrameHead + header_.payload_bytes - filled_};
}

FrameReader::Outcome FrameReader::Filled(std::size_t bytes) {
  const bool in_head = filled_ < kFrameHead;
  filled_ += bytes;
  if (in_head) {
    if (filled_ < kFrameHead) return Outcome::kMore;
    if (!ParseHead()) return Outcome::kError;
    if (header_.payload_bytes >= kWorthPlacing && place_) payload_ = place_(header_, arrives_);
    if (header_.payload_bytes > 0 && !payload_) payload_ = NewBlock(header_.payload_bytes);
  }
  return filled_ == kFrameHead + header_.payload_bytes ? Outcome::kFrame : Outcome::kMore;
}

bool FrameReader::ParseHead() {
  std::uint32_t words[2];
  std::memcpy(words, head_.data(), sizeof words);
  std::memcpy(&arrives_, head_.data() + sizeof words, sizeof arrives_);
  received_ = words[1];
  if (words[0] != kFrameMagic) {
    error_ = "not a geomx message";
    return false;
  }
  if (arrives_ < 0 || (arrives_ > 0 && arrives_ > Now() + kLongestFlight)) {
    error_ = "a message from too far away";
    return false;
  }
  const auto header =
      ParseHeader(std::span(head_).subspan<kPrefixBytes, kHeaderBytes>(), error_);
  if (!header) return false;
  if (header->payload_bytes > max_payload_) {
    error_ = "payload too large";
    return false;
  }
  header_ = *header;
  return true;
}

Frame FrameReader::Take() {
  Frame frame{.message = {.header = header_, .payload = {}},
              .arrives = arrives_,
              .received = received_};
  if (payload_) {
    const Bytes bytes{payload_.get(), header_.payload_bytes};
    frame.message.payload = Payload::View(bytes, std::move(payload_));
    payload_.reset();
  }
  filled_ = 0;
  return frame;
}

std::shared_ptr<std::byte> FrameReader::NewBlock(std::size_t bytes) {
  const auto memory = [](const std::shared_ptr<Block>& block) {
    return std::shared_ptr<std::byte>(block, block->bytes.get());
  };
  for (const auto& kept : kept_) {
    if (kept && kept.use_count() == 1 && kept->capacity >= bytes) return memory(kept);
  }
  if (bytes > kKeptBlock) return memory(std::make_shared<Block>(bytes));
  auto& slot = kept_[next_kept_];
  next_kept_ = (next_kept_ + 1) % kept_.size();
  slot = std::make_shared<Block>(std::bit_ceil(std::max(bytes, kSmallestBlock)));
  return memory(slot);
}

// ---- writing ---------------------------------------------------------------------------------

FrameLink::Outgoing FrameLink::MakeFrame(Message message, Time arrives, Time now) {
  Outgoing frame;
  const std::uint32_t words[2] = {kFrameMagic, 0};
  std::memcpy(frame.head.data(), words, sizeof words);
  std::memcpy(frame.head.data() + sizeof words, &arrives, sizeof arrives);
  const WireHeader header = SerializeHeader(message.header);
  std::memcpy(frame.head.data() + kPrefixBytes, header.data(), header.size());
  frame.size = kFrameHead + message.payload.size();
  frame.message = std::move(message);
  frame.started = now;
  return frame;
}

void FrameLink::Push(Message message, Time arrives, Time now) {
  Outgoing frame = MakeFrame(std::move(message), arrives, now);
  pending_bytes_ += frame.size;
  const bool numbered = IsNumbered(frame.message.header);
  const bool empty = !numbered && frame.message.header.channel == 0;
  link_.Add(std::move(frame), numbered, empty);
}

void FrameLink::Begin(std::uint32_t sent, std::uint32_t received) {
  link_.outbox.Begin(sent);
  link_.arrivals.Begin(received);
}

FrameLink::Outgoing FrameLink::Restored(Message message) {
  Outgoing frame = MakeFrame(std::move(message), 0, 0);
  frame.told = true;
  return frame;
}

void FrameLink::Restore(Message message) { link_.outbox.AddLeft(Restored(std::move(message))); }

void FrameLink::Exchange(Archive& archive) {
  link_.Exchange(archive, [](const Outgoing& frame) { return frame.message; }, &FrameLink::Restored);
}

long FrameLink::Write(int fd, TlsStream* tls, std::size_t limit, const Done& done) {
  limit = std::min(limit, std::max(write_bytes_, kLeastWrite));
  if (tls != nullptr) limit = std::min(limit, TlsStream::kMostBytes);
  std::array<iovec, kMaxPieces> pieces;
  std::size_t count = 0;
  std::size_t total = 0;
  std::size_t skip = written_;
  const auto add = [&](Bytes bytes) {
    const std::size_t passed = std::min(skip, bytes.size());
    skip -= passed;
    bytes = bytes.subspan(passed);
    bytes = bytes.first(std::min(bytes.size(), limit - total));
    if (bytes.empty() || count == kMaxPieces) return;
    pieces[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    total += bytes.size();
  };
  auto& outbox = link_.outbox;
  const std::uint32_t received = link_.receipt();
  const bool held = tls != nullptr && tls->Holds();  // they leave as they were
  for (std::size_t i = 0; i < link_.ready(); ++i) {
    if (count == kMaxPieces || total >= limit) break;
    Outgoing& frame = outbox.At(i);
    if (!held && (i > 0 || written_ == 0)) {
      std::memcpy(frame.head.data() + sizeof kFrameMagic, &received, sizeof received);
    }
    add(frame.head);
    for (const Bytes piece : frame.message.payload.pieces()) add(piece);
  }
  if (count == 0) return 0;
  const std::span<const iovec> chosen(pieces.data(), count);
  const ssize_t taken = tls != nullptr ? tls->Write(chosen) : SendPlain(fd, chosen);
  if (taken < 0 && errno != EAGAIN && errno != EINTR) return -1;
  if (!held) Adapt(static_cast<std::size_t>(std::max<ssize_t>(taken, 0)), total);
  if (taken < 0) return 0;
  const bool all_told = !held && received == link_.arrivals.received();
  if (written_ == 0 && taken > 0 && all_told) unacknowledged_ = 0;
  written_ += static_cast<std::size_t>(taken);
  pending_bytes_ -= static_cast<std::size_t>(taken);
  while (outbox.unsent() > 0 && written_ >= outbox.At(0).size) {
    Outgoing& frame = outbox.At(0);
    written_ -= frame.size;
    if (!std::exchange(frame.told, true)) done(frame.message, frame.started);
    outbox.Leave();
    if (written_ > 0 && all_told) unacknowledged_ = 0;
  }
  return taken;
}

// What the kernel has taken cannot be overtaken, and it takes a whole large write where it would refuse
// two small ones. So a call offers about what the kernel took between the last two times it was full:
// little where the network is slow, and much where that saves calls.
void FrameLink::Adapt(std::size_t taken, std::size_t offered) {
  taken_ += taken;
  write_bytes_ = taken < offered ? std::exchange(taken_, 0) : std::max(write_bytes_, 2 * offered);
}

FrameLink::Arrival FrameLink::Take(const Frame& frame) {
  if (!link_.outbox.Acknowledge(frame.received)) return Arrival::kMismatch;
  if (!IsNumbered(frame.message.header)) return Arrival::kNew;
  unacknowledged_ += frame.message.wire_bytes();
  return link_.arrivals.Take() ? Arrival::kNew : Arrival::kRepeat;
}

// Unacknowledged messages leave again, and a partly written one starts again.
FrameLink::Outcome FrameLink::Restart(Outcome outcome) {
  if (outcome != Outcome::kCarried) return outcome;
  written_ = write_bytes_ = taken_ = 0;
  pending_bytes_ = 0;
  for (std::size_t i = 0; i < link_.outbox.unsent(); ++i) pending_bytes_ += link_.outbox.At(i).size;
  unacknowledged_ = 0;
  return outcome;
}

bool WriteAlone(int fd, TlsStream* tls, Message message) {
  message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
  FrameLink alone;
  alone.Push(std::move(message), 0, Now());
  alone.Write(fd, tls, kAlone, [](const Message&, Time) {});
  return alone.empty();
}

}  // namespace geomx::io
