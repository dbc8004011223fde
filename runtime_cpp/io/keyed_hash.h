// Authentication of members by the run's token, which every member knows.
//
// A connection begins with a proof of the token (proof.h); a datagram carries a 64-bit hash of its bytes under a key
// derived from the token, so that other senders' datagrams are dropped. The hash is SipHash-2-4
// (Aumasson and Bernstein, 2012), which was designed for this: short inputs, a secret key, no
// forgeries without it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/payload.h"

namespace geomx::io {

class KeyedHash {
 public:
  struct Secret {
    std::uint64_t low = 0, high = 0;
  };

  explicit KeyedHash(const Secret& secret)
      : a_(secret.low ^ 0x736f6d6570736575u),
        b_(secret.high ^ 0x646f72616e646f6du),
        c_(secret.low ^ 0x6c7967656e657261u),
        d_(secret.high ^ 0x7465646279746573u) {}

  KeyedHash& Add(Bytes bytes) {
    for (; filled_ != 0 && !bytes.empty(); bytes = bytes.subspan(1)) Byte(bytes.front());
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data(), 8);
      length_ += 8;
      Word(word);
    }
    for (const std::byte byte : bytes) Byte(byte);
    return *this;
  }

  std::uint64_t Finish() {
    Word(tail_ | static_cast<std::uint64_t>(length_) << 56);
    c_ ^= 0xff;
    for (int i = 0; i < 4; ++i) Round();
    return a_ ^ b_ ^ c_ ^ d_;
  }

  static Secret SecretOf(std::string_view token) {
    const Bytes bytes = std::as_bytes(std::span(token));
    return {KeyedHash({1, 0}).Add(bytes).Finish(), KeyedHash({2, 0}).Add(bytes).Finish()};
  }

 private:
  void Byte(std::byte byte) {
    tail_ |= static_cast<std::uint64_t>(byte) << (8 * filled_);
    ++length_;
    if (++filled_ < 8) return;
    Word(tail_);
    tail_ = 0;
    filled_ = 0;
  }

  void Word(std::uint64_t word) {
    d_ ^= word;
    Round();
    Round();
    a_ ^= word;
  }

  void Round() {
    a_ += b_;
    c_ += d_;
    b_ = std::rotl(b_, 13) ^ a_;
    d_ = std::rotl(d_, 16) ^ c_;
    a_ = std::rotl(a_, 32);
    c_ += b_;
    a_ += d_;
    b_ = std::rotl(b_, 17) ^ c_;
    d_ = std::rotl(d_, 21) ^ a_;
    c_ = std::rotl(c_, 32);
  }

  std::uint64_t a_, b_, c_, d_;
  std::uint64_t tail_ = 0;
  int filled_ = 0;
  std::uint8_t length_ = 0;  // modulo 256, as the algorithm requires
};

// Compares in constant time: the position of the first difference does not matter.
inline bool SameSecret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace geomx::io
