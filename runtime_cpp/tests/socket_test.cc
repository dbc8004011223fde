// The driver's use of sockets: progress of connections, datagrams, and errors of the kernel.
#include "io/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/clock.h"
#include "io/mailbox.h"
#include "io/poller.h"
#include "io/tcp.h"
#include "io/udp.h"
#include "tests/check.h"

namespace geomx::io {
namespace {

// Writes until the send buffer is full, and returns the number of bytes.
std::size_t Fill(int fd) {
  const std::vector<char> bytes(64 * 1024);
  std::size_t taken = 0;
  for (ssize_t n; (n = send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0;) {
    taken += static_cast<std::size_t>(n);
  }
  return taken;
}

std::size_t Drain(int fd) {
  std::vector<char> bytes(64 * 1024);
  std::size_t read = 0;
  for (ssize_t n; (n = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0;) {
    read += static_cast<std::size_t>(n);
  }
  return read;
}

// A connection to `port`: the end that called, and the one that accepted.
std::pair<Fd, Fd> Connected(const Port& port) {
  Fd sender = Connect(port.address, {});
  pollfd waiting{port.listener.get(), POLLIN, 0};
  CHECK_EQ(poll(&waiting, 1, 5000), 1);
  return {std::move(sender), Fd(accept(port.listener.get(), nullptr, nullptr))};
}

TEST(progress_reports_bytes_that_the_peer_does_not_read) {
  const auto [sender, receiver] = Connected(Bind("127.0.0.1", 0));
  CHECK_EQ(ProgressOf(sender.get()).standing, 0.0);

  const std::size_t written = Fill(sender.get());
  CHECK(written > 0);
  const Progress full = ProgressOf(sender.get());
  CHECK(full.standing > 0.0);
  CHECK(full.standing < static_cast<double>(written));  // the rest is in the peer's buffer

  std::size_t read = 0;
  for (int tries = 0; read < written && tries < 5000; ++tries) {
    read += Drain(receiver.get());
    poll(nullptr, 0, 1);
  }
  CHECK_EQ(read, written);
  for (int tries = 0; ProgressOf(sender.get()).standing > 0.0 && tries < 5000; ++tries) {
    poll(nullptr, 0, 1);
  }
  const Progress done = ProgressOf(sender.get());
  CHECK_EQ(done.standing, 0.0);
  CHECK(done.delivered > 0.0);
}

// An urgent message waits behind what the kernel has taken: a slow network is offered little.
TEST(writes_grow_until_the_socket_is_full) {
  const auto [sender, receiver] = Connected(Bind("127.0.0.1", 0));
  TuneConnection(sender.get(), "", kNever);
  constexpr std::size_t kMost = 256 * 1024;
  FrameLink link;
  for (int i = 0; i < 64; ++i) {
    Message message;
    message.payload = Payload::Copy(std::vector<std::byte>(1024 * 1024));
    message.header.payload_bytes = static_cast<std::uint32_t>(message.payload.size());
    link.Push(std::move(message), 0, 0);
  }
  const auto write = [&] {
    return static_cast<std::size_t>(
        std::max(0L, link.Write(sender.get(), nullptr, kMost, [](const Message&, Time) {})));
  };
  std::size_t expected = 16 * 1024, taken = 0, last;
  for (; (last = write()) == expected; expected = std::min(2 * expected, kMost)) taken += last;
  CHECK(taken >= 16 * 1024);
  CHECK(last < expected);
  while (write() > 0) continue;
  CHECK_EQ(write(), 0u);
  for (std::size_t before = link.pending_bytes(); link.pending_bytes() == before; write()) {
    poll(nullptr, 0, 1);
    Drain(receiver.get());
    if (write() > 0) CHECK(before - link.pending_bytes() <= 16 * 1024);  // nothing was taken in between
  }
}

// Not for this machine's own addresses, among which one in another notation does not count here.
TEST(unsent_data_follows_the_pace) {
  for (const bool loopback : {true, false}) {
    const auto [sender, receiver] = Connected(Bind(loopback ? "127.0.0.1" : "::ffff:127.0.0.1", 0, true));
    TuneConnection(sender.get(), "", kNever);
    CHECK(Fill(sender.get()) > 0);
    LimitUnsent(sender.get());
    int limit = 0;
    socklen_t length = sizeof limit;
    CHECK_EQ(getsockopt(sender.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, &length), 0);
    CHECK_EQ(limit, loopback ? 16 * 1024 : 256 * 1024);
  }
}

TEST(a_path_is_busy_with_what_is_not_on_its_way) {
  for (const std::string congestion : {"reno", "bbr"}) {
    const auto [sender, receiver] = Connected(Bind("::ffff:127.0.0.1", 0, true));
    TuneConnection(sender.get(), congestion, kNever);
    char used[16] = {};
    socklen_t length = sizeof used;
    CHECK_EQ(getsockopt(sender.get(), IPPROTO_TCP, TCP_CONGESTION, used, &length), 0);
    if (congestion != used) continue;  // the kernel does not have it
    constexpr int kRate = 2'000'000;   // bytes/s
    CHECK_EQ(setsockopt(sender.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &kRate, sizeof kRate), 0);
    CHECK_EQ(BusyFor(sender.get()), 0);
    CHECK(Fill(sender.get()) > 0);
    Time busy = 0;
    const bool known = congestion == "bbr";  // as soon as something has been paced
    for (int tries = 0; (busy = BusyFor(sender.get())) == 0 && tries < (known ? 2000 : 20); ++tries) {
      poll(nullptr, 0, 1);
    }
    CHECK_EQ(busy > 0, known);
    for (int tries = 0; BusyFor(sender.get()) > 0 && tries < 5000; ++tries) {
      Drain(receiver.get());
      poll(nullptr, 0, 1);
    }
    CHECK_EQ(BusyFor(sender.get()), 0);
  }
}

TEST(other_sockets_have_no_progress) {
  CHECK_EQ(BusyFor(-1), 0);
  const Progress none = ProgressOf(-1);
  CHECK_EQ(none.delivered, 0.0);
  CHECK_EQ(none.standing, 0.0);
}

TEST(addresses_of_numbers_need_no_name_service) {
  for (const std::string address : {"10.0.0.1:9", "[::1]:65535", "[fe80::1%lo]:80"}) {
    const auto parsed = ParseAddress(address);
    CHECK(parsed && Format(*parsed) == address);
  }
  for (const std::string address : {"localhost:9", "a.name:9", "10.0.0.1", "10.0.0.1:http", ":9", "", "[::1:9", "::"}) {
    CHECK(!ParseAddress(address));
  }
}

// A listener of both families sees callers of the older one by their addresses in the newer one.
TEST(one_host_has_one_name_in_both_families) {
  const auto host = [](const std::string& address) { return HostOf(ParseAddress(address).value()); };
  CHECK(host("[::ffff:10.0.0.1]:9") == host("10.0.0.1:7"));
  CHECK(host("[::ffff:10.0.0.1]:9") != host("[::ffff:10.0.0.2]:9"));
  CHECK(host("[2001:db8::1]:9") == host("[2001:db8::2]:9"));  // of one network
  CHECK(host("[2001:db8::1]:9") != host("[2001:db8:1::1]:9"));
}

// Returns the message of the exception that a call throws; empty if it throws none.
std::string Thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(errors_of_the_kernel_are_reported) {
  Poller poller;
  CHECK_EQ(Thrown([&] { poller.Add(-1, 1, EPOLLIN); }), "cannot watch a socket: Bad file descriptor");
  const Port port = Bind("127.0.0.1", 0);
  poller.Add(port.listener.get(), 1, EPOLLIN);
  CHECK_EQ(Thrown([&] { poller.Add(port.listener.get(), 1, EPOLLIN); }),
           "cannot watch a socket: File exists");
  CHECK_EQ(Thrown([&] { poller.Change(port.datagrams.get(), 2, EPOLLIN); }),
           "cannot watch a socket: No such file or directory");

  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;  // open descriptors stay open
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string mailbox = Thrown([] { Mailbox mailbox; });
  const std::string another = Thrown([] { Poller poller; });
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  CHECK_EQ(mailbox, "cannot make an eventfd: Too many open files");
  CHECK_EQ(another, "cannot make an epoll and a timer: Too many open files");
}

// A wait until now returns, also when the one before has returned because its time had come.
TEST(waits_until_now_return) {
  Poller poller;
  for (const Time until : {Time{0}, Time{0}, Now() + kMillisecond, Time{0}, Now(), Time{0}}) {
    CHECK(poller.Wait(until).empty());
  }
}

// A datagram contains its emulated time of arrival. Until then it uses memory, which must be bounded.
TEST(waiting_datagrams_are_bounded) {
  const std::string token = "secret";
  Port here = Bind("127.0.0.1", 0), there = Bind("127.0.0.1", 0);
  Datagrams sender(std::move(there.datagrams), token, false);
  Message message;
  Header& header = message.header;
  header.kind = Kind::kPush;
  header.channel = 1;
  header.merge_count = header.slices = 1;
  header.shard_elements = header.total_rows = header.rows = 16'000;
  message.payload = Payload::Copy(std::vector<std::byte>(64'000));
  header.payload_bytes = 64'000;
  const std::size_t bytes = message.wire_bytes();
  constexpr std::uint64_t kOfOne = 5, kOfAll = 12;
  Datagrams receiver(std::move(here.datagrams), token, false,
                     {.of_one = kOfOne * bytes + 1, .of_all = kOfAll * bytes + 1});
  const auto send = [&](NodeId from) {
    header.source = from;
    const auto handled = [&] { return receiver.counts().received + receiver.counts().refused; };
    const std::uint64_t before = handled();
    sender.Send(0, here.address, message, Now() + 500 * kSecond);
    for (int tries = 0; handled() == before && tries < 5000; ++tries) {
      receiver.Receive(10, [](Frame) { return true; });
      if (handled() == before) poll(nullptr, 0, 1);
    }
    CHECK_EQ(handled(), before + 1);
  };
  for (std::uint64_t i = 0; i < kOfOne + 2; ++i) send(1);
  CHECK_EQ(receiver.counts().received, kOfOne);
  CHECK_EQ(receiver.counts().refused, 2u);
  for (NodeId from = 2; from <= 4; ++from) {
    for (std::uint64_t i = 0; i < kOfOne; ++i) send(from);
  }
  CHECK_EQ(receiver.counts().received, kOfAll);
  // Delivered datagrams make room for others.
  receiver.Release(1, 3 * bytes);
  for (int i = 0; i < 6; ++i) send(1);
  CHECK_EQ(receiver.counts().received, kOfAll + 3);
  receiver.Release(1, kOfOne * bytes);
  receiver.Release(2, kOfOne * bytes);
  CHECK_EQ(receiver.senders_waiting(), 1u);
  receiver.Release(3, (kOfAll - 2 * kOfOne) * bytes);
  CHECK_EQ(receiver.senders_waiting(), 0u);
}

// Any member can send datagrams with another sender's id. Datagrams that are not kept leave no entry for it.
TEST(datagrams_in_forged_names_are_forgotten) {
  Port here = Bind("127.0.0.1", 0), there = Bind("127.0.0.1", 0);
  Datagrams sender(std::move(there.datagrams), "secret", false);
  Datagrams receiver(std::move(here.datagrams), "secret", false);
  Message message;
  Header& header = message.header;
  header.kind = Kind::kPush;
  header.channel = 1;
  header.merge_count = header.slices = header.shard_elements = header.total_rows = header.rows = 1;
  message.payload = Payload::Copy(std::vector<std::byte>(4));
  header.payload_bytes = 4;
  std::uint64_t kept = 0;
  for (NodeId from = 0; from < 200; ++from) {
    header.source = from;
    sender.Send(0, here.address, message, 0);
    for (int tries = 0; receiver.counts().received == from && tries < 5000; ++tries) {
      receiver.Receive(10, [&](Frame) { return kept++ == 0; });
      if (receiver.counts().received == from) poll(nullptr, 0, 1);
    }
  }
  CHECK_EQ(receiver.counts().received, 200u);
  CHECK_EQ(receiver.senders_waiting(), 1u);
}

}  // namespace
}  // namespace geomx::io
