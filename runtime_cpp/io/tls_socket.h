// The socket under OpenSSL's record layer, as a BIO that uses few system calls: records are collected
// until Flush, and a read of one record also brings the beginning of the next.
//
// Only tls.cc uses this. Single-threaded; no function blocks.
#pragma once

#include <openssl/bio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace geomx::io {

class TlsSocket {
 public:
  // Memory that sockets of one thread lend each other while they have records to send.
  using Spare = std::shared_ptr<std::vector<std::byte>>;

  TlsSocket(int fd, Spare spare) : fd_(fd), spare_(std::move(spare)) {}
  ~TlsSocket() { Return(); }
  TlsSocket(const TlsSocket&) = delete;
  TlsSocket& operator=(const TlsSocket&) = delete;

  // A new BIO, whose owner must not outlive this; null if memory lacks.
  BIO* NewBio();

  // Sends what was collected, with one system call. Returns false unless the kernel took all of it
  // (errno); what is left is held for the next Flush.
  bool Flush();
  // The handshake is done. From now on OpenSSL need not wait for its own words to leave, such as that
  // a key changes: they are held, too. It would read nothing meanwhile, and two ends that wait so for
  // each other would never continue.
  void Establish() { established_ = true; }
  std::uint64_t collected() const { return collected_; }  // bytes in all
  std::uint64_t sent() const { return sent_; }            // of them

 private:
  // As OpenSSL's functions of a BIO.
  static int Write(BIO* bio, const char* bytes, std::size_t size, std::size_t* taken);
  static int Read(BIO* bio, char* room, std::size_t size, std::size_t* got);
  static long Control(BIO* bio, int what, long, void*);
  static const BIO_METHOD* Method();

  void Return();

  const int fd_;
  const Spare spare_;
  std::vector<std::byte> out_;  // the latest that were collected
  std::uint64_t collected_ = 0, sent_ = 0;
  std::vector<std::byte> ahead_;  // read, and not yet asked for
  std::size_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  bool established_ = false;
};

}  // namespace geomx::io
