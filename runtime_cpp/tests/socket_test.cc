// What the driver asks the kernel about a connection.
#include "io/socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <vector>

#include "tests/check.h"

namespace geomx::io {
namespace {

// Writes until the kernel takes no more; reads until there is no more.
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

TEST(what_a_peer_does_not_take_stands) {
  const Port port = Bind("127.0.0.1", 0);
  const Fd sender = Connect(port.address, {});
  pollfd waiting{port.listener.get(), POLLIN, 0};
  CHECK_EQ(poll(&waiting, 1, 5000), 1);
  const Fd receiver(accept(port.listener.get(), nullptr, nullptr));
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

TEST(what_is_no_connection_has_no_progress) {
  const Progress none = ProgressOf(-1);
  CHECK_EQ(none.delivered, 0.0);
  CHECK_EQ(none.standing, 0.0);
}

}  // namespace
}  // namespace geomx::io
