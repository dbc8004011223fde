#include "io/udp.h"

#include <netinet/in.h>
#include <netinet/ip.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace geomx::io {
namespace {

constexpr std::size_t kDatagramRoom = 65'536;
constexpr std::size_t kMaxPieces = 16;

int TrafficClass(std::uint8_t channel) {
  if (channel <= 1) return IPTOS_DSCP_AF11;
  return channel == 2 ? IPTOS_DSCP_AF12 : IPTOS_DSCP_AF13;
}

}  // namespace

Datagrams::Datagrams(Fd fd, std::string_view token)
    : fd_(std::move(fd)),
      v6_(LocalAddress(fd_.get()).storage.ss_family == AF_INET6),
      secret_(KeyedHash::SecretOf(token)),
      buffer_(kDatagramRoom) {}

std::uint64_t Datagrams::Check(std::span<const Bytes> pieces) const {
  KeyedHash hash(secret_);
  for (const Bytes piece : pieces) hash.Add(piece);
  return hash.Finish();
}

void Datagrams::Send(const Address& address, const Message& message, Time arrives) {
  const WireHeader header = SerializeHeader(message.header);
  std::vector<Bytes> parts = {std::as_bytes(std::span(&arrives, 1)), header};
  parts.insert(parts.end(), message.payload.pieces().begin(), message.payload.pieces().end());
  std::vector<std::byte> gathered;
  if (parts.size() >= kMaxPieces) {
    parts = {parts[0], parts[1], message.payload.Contiguous(gathered)};
  }
  const std::uint64_t check = Check(parts);
  std::array<iovec, kMaxPieces + 1> pieces;
  std::size_t count = 0;
  pieces[count++] = {const_cast<std::uint64_t*>(&check), sizeof check};
  for (const Bytes part : parts) {
    pieces[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  const int traffic_class = TrafficClass(message.header.channel);
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

std::optional<Frame> Datagrams::Parse(Bytes bytes) const {
  if (bytes.size() < kFrameHead || bytes.size() > kMaxBytes) return std::nullopt;
  std::uint64_t check;
  std::memcpy(&check, bytes.data(), sizeof check);
  const Bytes rest = bytes.subspan(sizeof check);
  if (check != Check({&rest, 1})) return std::nullopt;
  Frame frame;
  std::memcpy(&frame.arrives, rest.data(), sizeof frame.arrives);
  if (frame.arrives < 0 || frame.arrives > Now() + kLongestFlight) return std::nullopt;
  std::string error;
  const auto header = ParseHeader(bytes.subspan<kPrefixBytes, kHeaderBytes>(), error);
  if (!header || header->payload_bytes != bytes.size() - kFrameHead) return std::nullopt;
  if (!IsTransfer(header->kind) || header->channel == 0) return std::nullopt;
  frame.message.header = *header;
  frame.message.payload = Payload::Copy(bytes.subspan(kFrameHead));
  return frame;
}

void Datagrams::Receive(int budget, const std::function<void(Frame)>& sink) {
  for (; budget > 0; --budget) {
    const ssize_t size = recv(fd_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (size < 0) return;
    auto frame = Parse({buffer_.data(), static_cast<std::size_t>(size)});
    ++(frame ? counts_.received : counts_.refused);
    if (frame) sink(std::move(*frame));
  }
}

}  // namespace geomx::io
