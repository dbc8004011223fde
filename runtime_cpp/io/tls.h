// TLS 1.3 on the connections of a run, both ends with a certificate of the run's own authority, and
// the keys that protect datagrams between the same two ends.
//
// A certificate names its node as an address: URI "geomx:NAME", NAME percent-encoded; the
// scheduler's also holds "geomx-role:scheduler", so that no other certificate serves to hand
// out experiments. OpenSSL is seen by tls.cc alone; a build without it has tls_absent.cc instead,
// whose OpenTls says so.
//
// One thread, which must have SIGPIPE blocked. Nothing here waits.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/payload.h"

namespace geomx::io {

// PEM files of one node.
struct TlsFiles {
  std::string authority;    // whom it trusts
  std::string certificate;  // its own
  std::string key;          // of that
};

// What a certificate says of its owner.
struct Certified {
  std::string name;
  bool scheduler = false;
};

// Protects the datagrams between the two ends of one connection, each with a key of its own
// direction that was derived from the connection's (RFC 5705, as RFC 8446 has it): AES-256-GCM, with
// a counter that makes every nonce new and lets a datagram be opened once.
class Seal {
 public:
  static constexpr std::size_t kCounterBytes = 8;
  static constexpr std::size_t kTagBytes = 16;

  virtual ~Seal() = default;
  // Appends counter, sealed bytes and tag to `out`; `about` is protected too, but not hidden.
  virtual void Close(Bytes about, std::span<const Bytes> parts, std::vector<std::byte>& out) = 0;
  // The bytes of `sealed`, which is what Close appended. False: changed on the way, sent by another
  // than the other end, or seen before.
  virtual bool Open(Bytes about, Bytes sealed, std::vector<std::byte>& out) = 0;
};

// One connection.
class TlsStream {
 public:
  enum class Step { kDone, kWantsRead, kWantsWrite, kLost, kRefused };

  virtual ~TlsStream() = default;
  // Goes on with the handshake. kLost: the connection ended; kRefused: one end does not trust the
  // other, or does not speak TLS: error().
  virtual Step Handshake() = 0;
  // As recv and send: -1 and errno, EAGAIN where the socket is empty or full, EPROTO with error().
  virtual ssize_t Read(std::span<std::byte> room) = 0;
  // After EAGAIN the next call must begin with the same bytes.
  virtual ssize_t Write(Bytes bytes) = 0;
  // After the handshake.
  virtual Certified Peer() const = 0;
  virtual std::unique_ptr<Seal> MakeSeal() = 0;
  virtual const std::string& error() const = 0;
};

// One node's end of all its connections.
class Tls {
 public:
  virtual ~Tls() = default;
  virtual std::unique_ptr<TlsStream> Answer(int fd) = 0;
  virtual std::unique_ptr<TlsStream> Call(int fd) = 0;
};

// Throws std::runtime_error that says which file is wrong, and how.
std::unique_ptr<Tls> OpenTls(const TlsFiles& files);

// What protects connections in this build: "openssl 3.0.2", or "no_openssl".
std::string TlsBuild();

}  // namespace geomx::io
