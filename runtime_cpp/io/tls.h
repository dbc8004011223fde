// TLS 1.3 for the connections of a run, with certificates of the run's own authority at both ends,
// and keys for the datagrams between the same two ends.
//
// A certificate names its node as an address: URI "geomx:NAME", NAME percent-encoded. That of a standby
// also names the global server whose place it may take; the scheduler's also holds
// "geomx-role:scheduler", so no other node can pose as the scheduler. Only tls.cc and tls_*.cc use
// OpenSSL; a build without it compiles tls_absent.cc instead, whose OpenTls throws.
//
// Single-threaded; the thread must have SIGPIPE blocked. No function blocks.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/payload.h"

namespace geomx::io {

// PEM files of one node.
struct TlsFiles {
  std::string authority;    // the trusted authority's certificate
  std::string certificate;  // the node's own
  std::string key;          // of that certificate
};

// The identity that a certificate states.
struct Certified {
  std::vector<std::string> names;  // the node's, and of a standby its global server's
  bool scheduler = false;

  bool IsOf(const std::string& name) const { return std::find(names.begin(), names.end(), name) != names.end(); }
  // For people: "hub/standby0 and hub/global_server0".
  std::string Names() const {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : " and ") + name;
    return text;
  }
};

// Protects the datagrams between the two ends of one connection: AES-256-GCM, with a counter that makes every
// nonce unique and every datagram acceptable once. The counter also tells which key protects a datagram: each
// direction has one secret, exported from the connection (RFC 5705, as updated by RFC 8446), and a new key of
// that secret for every KeyBounds::datagrams of them.
class Seal {
 public:
  static constexpr std::size_t kCounterBytes = 8;
  static constexpr std::size_t kTagBytes = 16;

  virtual ~Seal() = default;
  // Appends counter, sealed bytes and tag to `out`; `about` is authenticated, but not encrypted.
  virtual void Close(Bytes about, std::span<const Bytes> parts, std::vector<std::byte>& out) = 0;
  // Decrypts `sealed`, the output of Close. Returns false if it was altered, is not from the other
  // end, or was seen before.
  virtual bool Open(Bytes about, Bytes sealed, std::vector<std::byte>& out) = 0;
};

// One connection.
class TlsStream {
 public:
  enum class Step { kDone, kWantsRead, kWantsWrite, kLost, kRefused };
  static constexpr std::size_t kMostBytes = 128 * 1024;

  virtual ~TlsStream() = default;
  // Continues the handshake. kLost: the connection ended; kRefused: one end does not trust the
  // other, or does not use TLS; see error().
  virtual Step Handshake() = 0;
  // As recv and sendmsg: -1 and errno, EAGAIN where the socket is empty or full, EPROTO with error().
  virtual ssize_t Read(std::span<std::byte> room) = 0;
  // Takes kMostBytes at most, and returns the number of bytes that the kernel has taken. Some of
  // those after them may be encrypted and held: the next call must begin with the bytes that were not
  // taken.
  virtual ssize_t Write(std::span<const iovec> pieces) = 0;
  // Whether such bytes are held: the next call writes them as they were.
  virtual bool Holds() const = 0;
  // After the handshake.
  virtual Certified Peer() const = 0;
  // What identifies this connection, equal at both ends and at no others (RFC 9266).
  virtual std::string Channel() const = 0;
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

// How much one key protects. AES-GCM is safe for 2^24.5 records of 16 KiB (RFC 8446, 5.5); a datagram may be
// as long as four of them.
struct KeyBounds {
  std::uint64_t records = std::uint64_t{1} << 24;
  std::uint64_t datagrams = std::uint64_t{1} << 22;
};

// Each end changes its keys as often as that, and the other end follows. Throws std::runtime_error that says
// which file is wrong, and how.
std::unique_ptr<Tls> OpenTls(const TlsFiles& files, const KeyBounds& bounds = {});

// The TLS library of this build: "openssl 3.0.2", or "no_openssl".
std::string TlsBuild();

}  // namespace geomx::io
