#include "io/udp.h"

#include <netinet/in.h>
#include <netinet/ip.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace geomx::io {
namespace {

constexpr std::size_t kDatagramRoom = 65'536;
constexpr std::size_t kDatagramPieces = 16;

int TrafficClass(std::uint8_t channel) {
  if (channel <= 1) return IPTOS_DSCP_AF11;
  return channel == 2 ? IPTOS_DSCP_AF12 : IPTOS_DSCP_AF13;
}

}  // namespace

Datagrams::Datagrams(Fd fd, std::string_view token, bool sealed, const Bounds& bounds)
    : fd_(std::move(fd)),
      v6_(LocalAddress(fd_.get()).storage.ss_family == AF_INET6),
      sealed_(sealed),
      secret_(KeyedHash::SecretOf(token)),
      buffer_(kDatagramRoom),
      bounds_(bounds) {}

void Datagrams::SetSeal(NodeId peer, std::unique_ptr<Seal> seal) {
  if (seal) {
    seals_[peer] = std::move(seal);
  } else {
    seals_.erase(peer);
  }
}

std::uint64_t Datagrams::Check(std::span<const Bytes> pieces) const {
  KeyedHash hash(secret_);
  for (const Bytes piece : pieces) hash.Add(piece);
  return hash.Finish();
}

void Datagrams::Send(NodeId peer, const Address& address, const Message& message, Time arrives) {
  const WireHeader header = SerializeHeader(message.header);
  std::vector<Bytes> parts = {std::as_bytes(std::span(&arrives, 1)), header};
  parts.insert(parts.end(), message.payload.pieces().begin(), message.payload.pieces().end());
  const std::uint8_t channel = message.header.channel;
  if (sealed_) {
    const auto seal = seals_.find(peer);
    if (seal == seals_.end()) {
      ++counts_.unsent;
      return;
    }
    const std::uint64_t sender = message.header.source;
    const Bytes about = std::as_bytes(std::span(&sender, 1));
    closed_.assign(about.begin(), about.end());
    seal->second->Close(about, parts, closed_);
    const Bytes whole = closed_;
    return SendPieces(address, channel, {&whole, 1});
  }
  std::vector<std::byte> gathered;
  if (parts.size() >= kDatagramPieces) {
    parts = {parts[0], parts[1], message.payload.Contiguous(gathered)};
  }
  const std::uint64_t check = Check(parts);
  parts.insert(parts.begin(), std::as_bytes(std::span(&check, 1)));
  SendPieces(address, channel, parts);
}

void Datagrams::SendPieces(const Address& address, std::uint8_t channel,
                           std::span<const Bytes> parts) {
  std::array<iovec, kDatagramPieces + 1> pieces;
  std::size_t count = 0;
  for (const Bytes part : parts) {
    pieces[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  const int traffic_class = TrafficClass(channel);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof traffic_class)> control{};
  msghdr datagram{};
  datagram.msg_name = const_cast<sockaddr*>(address.get());
  datagram.msg_namelen = address.length;
  datagram.msg_iov = pieces.data();
  datagram.msg_iovlen = count;
  datagram.msg_control = control.data();
  datagram.msg_controllen = control.size();
  cmsghdr* mark = CMSG_FIRSTHDR(&datagram);
  mark->cmsg_level = v6_ ? IPPROTO_IPV6 : IPPROTO_IP;
  mark->cmsg_type = v6_ ? IPV6_TCLASS : IP_TOS;
  mark->cmsg_len = CMSG_LEN(sizeof traffic_class);
  std::memcpy(CMSG_DATA(mark), &traffic_class, sizeof traffic_class);
  const bool sent = sendmsg(fd_.get(), &datagram, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  ++(sent ? counts_.sent : counts_.unsent);
}

// Verifies and removes the hash or seal.
std::optional<Frame> Datagrams::Open(Bytes bytes) {
  std::uint64_t first;
  if (bytes.size() < sizeof first) return std::nullopt;
  std::memcpy(&first, bytes.data(), sizeof first);
  const Bytes about = bytes.first(sizeof first);
  const Bytes rest = bytes.subspan(sizeof first);
  if (!sealed_) return first == Check({&rest, 1}) ? Parse(rest) : std::nullopt;
  const auto seal = first <= UINT32_MAX ? seals_.find(static_cast<NodeId>(first)) : seals_.end();
  if (seal == seals_.end() || !seal->second->Open(about, rest, opened_)) return std::nullopt;
  auto frame = Parse(opened_);
  if (frame && frame->message.header.source != first) return std::nullopt;
  return frame;
}

// Arrival time, header, payload.
std::optional<Frame> Datagrams::Parse(Bytes bytes) const {
  Frame frame;
  constexpr std::size_t kHead = sizeof frame.arrives + kHeaderBytes;
  if (bytes.size() < kHead || bytes.size() > kMaxBytes) return std::nullopt;
  std::memcpy(&frame.arrives, bytes.data(), sizeof frame.arrives);
  if (frame.arrives < 0 || frame.arrives > Now() + kLongestFlight) return std::nullopt;
  std::string error;
  const auto header = ParseHeader(bytes.subspan<sizeof frame.arrives, kHeaderBytes>(), error);
  if (!header || header->payload_bytes != bytes.size() - kHead) return std::nullopt;
  if (!IsTransfer(header->kind) || header->channel == 0) return std::nullopt;
  frame.message.header = *header;
  frame.message.payload = Payload::Copy(bytes.subspan(kHead));
  return frame;
}

bool Datagrams::MayWait(NodeId from, std::size_t bytes) const {
  const auto found = waiting_.find(from);
  const std::size_t waiting = found == waiting_.end() ? 0 : found->second;
  return all_waiting_ + bytes <= bounds_.of_all && waiting + bytes <= bounds_.of_one;
}

void Datagrams::Release(NodeId from, std::size_t bytes) {
  all_waiting_ -= bytes;
  const auto found = waiting_.find(from);
  if ((found->second -= bytes) == 0) waiting_.erase(found);
}

void Datagrams::Receive(int budget, const std::function<bool(Frame)>& sink) {
  for (; budget > 0; --budget) {
    const ssize_t size = recv(fd_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (size < 0) return;
    auto frame = Open({buffer_.data(), static_cast<std::size_t>(size)});
    const NodeId from = frame ? frame->message.header.source : 0;
    const std::size_t bytes = frame ? frame->message.wire_bytes() : 0;
    const bool taken = frame && MayWait(from, bytes);
    ++(taken ? counts_.received : counts_.refused);
    if (!taken || !sink(std::move(*frame))) continue;
    waiting_[from] += bytes;
    all_waiting_ += bytes;
  }
}

}  // namespace geomx::io
