#include "io/tls_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace geomx::io {
namespace {

constexpr std::size_t kAhead = 16 * 1024;
constexpr std::size_t kRecordHead = 5;
constexpr std::size_t kLarge = 4 * 1024;  // to copy more costs more than a system call
constexpr std::size_t kKept = 256 * 1024;

}  // namespace

bool TlsSocket::Flush() {
  while (sent_ < collected_) {
    const auto left = static_cast<std::size_t>(collected_ - sent_);
    const ssize_t taken =
        send(fd_, out_.data() + (out_.size() - left), left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return false;
    sent_ += static_cast<std::size_t>(taken);
    if (sent_ == collected_) break;
    errno = EAGAIN;
    return false;
  }
  Return();
  return true;
}

void TlsSocket::Return() {
  out_.clear();
  if (out_.capacity() > 0 && out_.capacity() <= kKept) *spare_ = std::move(out_);
  out_ = {};
}

int TlsSocket::Write(BIO* bio, const char* bytes, std::size_t size, std::size_t* taken) {
  auto& socket = *static_cast<TlsSocket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (socket.out_.capacity() == 0) socket.out_ = std::exchange(*socket.spare_, {});
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  socket.out_.insert(socket.out_.end(), begin, begin + size);
  socket.collected_ += *taken = size;
  return 1;
}

// Where OpenSSL asks for the rest of a large record, only the head of the next comes with it: neither
// record is copied. Small records come many at a time.
int TlsSocket::Read(BIO* bio, char* room, std::size_t size, std::size_t* got) {
  auto& socket = *static_cast<TlsSocket*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (socket.begin_ < socket.end_) {
    *got = std::min(size, socket.end_ - socket.begin_);
    std::memcpy(room, socket.ahead_.data() + socket.begin_, *got);
    socket.begin_ += *got;
    return 1;
  }
  if (socket.ahead_.empty()) socket.ahead_.resize(kAhead);
  const iovec pieces[2] = {{room, size},
                           {socket.ahead_.data(), size >= kLarge ? kRecordHead : kAhead}};
  const ssize_t bytes = readv(socket.fd_, pieces, 2);
  if (bytes <= 0) {
    socket.ended_ = bytes == 0;
    const bool later = bytes < 0 && (errno == EAGAIN || errno == EINTR);
    if (later) BIO_set_retry_read(bio);
    if (later) socket.ahead_ = {};  // a connection without traffic keeps no memory
    return bytes < 0 ? -1 : 0;
  }
  *got = std::min(size, static_cast<std::size_t>(bytes));
  socket.begin_ = 0;
  socket.end_ = static_cast<std::size_t>(bytes) - *got;
  return 1;
}

long TlsSocket::Control(BIO* bio, int what, long, void*) {
  auto& socket = *static_cast<TlsSocket*>(BIO_get_data(bio));
  if (what == BIO_CTRL_EOF) return socket.ended_ ? 1 : 0;
  if (what != BIO_CTRL_FLUSH) return 0;
  BIO_clear_retry_flags(bio);
  if (socket.Flush()) return 1;
  const bool holds = socket.established_ && socket.collected_ - socket.sent_ < kKept;
  if (holds && errno == EAGAIN) return 1;
  if (errno == EAGAIN) BIO_set_retry_write(bio);
  return -1;
}

const BIO_METHOD* TlsSocket::Method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "geomx socket");
    if (made == nullptr) return made;
    BIO_meth_set_write_ex(made, &TlsSocket::Write);
    BIO_meth_set_read_ex(made, &TlsSocket::Read);
    BIO_meth_set_ctrl(made, &TlsSocket::Control);
    return made;
  }();
  return method;
}

BIO* TlsSocket::NewBio() {
  BIO* bio = Method() != nullptr ? BIO_new(Method()) : nullptr;
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace geomx::io
