#include "io/tls_seal.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/replay.h"

namespace geomx::io {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kSaltBytes = 4;  // the nonce is salt and counter

struct CipherFreer {
  void operator()(EVP_CIPHER_CTX* owned) const { EVP_CIPHER_CTX_free(owned); }
};

void CheckSealed(bool done) {
  if (done) return;
  const char* reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  throw std::runtime_error(std::string("sealing a datagram failed: ") +
                           (reason != nullptr ? reason : "unknown TLS error"));
}

// One of a direction's keys, by its number.
struct DatagramKey {
  std::uint64_t number = 0;
  std::array<unsigned char, kSaltBytes> salt{};
  std::unique_ptr<EVP_CIPHER_CTX, CipherFreer> cipher;
};

// All keys of one direction: parts of HMAC-SHA-512 (FIPS 198-1) of their numbers by its secret, so that any of
// them can be made at any time.
class DatagramKeys {
 public:
  DatagramKeys(std::string_view secret, std::uint64_t datagrams_per_key, bool sealing)
      : secret_(secret), per_key_(datagrams_per_key), sealing_(sealing) {}

  std::uint64_t NumberOf(std::uint64_t counter) const { return counter / per_key_; }

  DatagramKey Make(std::uint64_t number) const {
    std::array<unsigned char, SHA512_DIGEST_LENGTH> material;
    unsigned size = 0;
    CheckSealed(HMAC(EVP_sha512(), secret_.data(), static_cast<int>(secret_.size()),
               reinterpret_cast<const unsigned char*>(&number), sizeof number, material.data(), &size) != nullptr);
    DatagramKey made;
    made.number = number;
    made.cipher.reset(EVP_CIPHER_CTX_new());
    CheckSealed(made.cipher != nullptr && EVP_CipherInit_ex(made.cipher.get(), EVP_aes_256_gcm(), nullptr,
                                                      material.data(), nullptr, sealing_ ? 1 : 0) == 1);
    std::memcpy(made.salt.data(), material.data() + kKeyBytes, kSaltBytes);
    OPENSSL_cleanse(material.data(), material.size());
    return made;
  }

 private:
  std::string secret_;
  std::uint64_t per_key_;
  bool sealing_;
};

class AesSeal final : public Seal {
 public:
  AesSeal(std::string_view mine, std::string_view theirs, std::uint64_t datagrams_per_key)
      : mine_(mine, datagrams_per_key, true), theirs_(theirs, datagrams_per_key, false) {}

  void Close(Bytes about, std::span<const Bytes> parts, std::vector<std::byte>& out) override {
    const std::uint64_t counter = counter_++;
    const auto* number = reinterpret_cast<const std::byte*>(&counter);
    out.insert(out.end(), number, number + sizeof counter);
    if (!sealing_.cipher || sealing_.number != mine_.NumberOf(counter)) {
      sealing_ = mine_.Make(mine_.NumberOf(counter));
    }
    EVP_CIPHER_CTX* const cipher = sealing_.cipher.get();
    const auto nonce = Nonce(sealing_, counter);
    CheckSealed(EVP_EncryptInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data()));
    int taken = 0;
    CheckSealed(EVP_EncryptUpdate(cipher, nullptr, &taken, Raw(about), Size(about)));
    for (const Bytes part : parts) {
      if (part.empty()) continue;
      const std::size_t at = out.size();
      out.resize(at + part.size());
      CheckSealed(EVP_EncryptUpdate(cipher, Raw(out, at), &taken, Raw(part), Size(part)));
    }
    const std::size_t at = out.size();
    out.resize(at + kTagBytes);
    CheckSealed(EVP_EncryptFinal_ex(cipher, Raw(out, at), &taken));
    CheckSealed(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, kTagBytes, Raw(out, at)));
  }

  bool Open(Bytes about, Bytes sealed, std::vector<std::byte>& out) override {
    if (sealed.size() < kCounterBytes + kTagBytes) return false;
    std::uint64_t counter;
    std::memcpy(&counter, sealed.data(), sizeof counter);
    const Bytes hidden = sealed.subspan(kCounterBytes, sealed.size() - kCounterBytes - kTagBytes);
    std::array<std::byte, kTagBytes> tag;
    std::memcpy(tag.data(), sealed.last(kTagBytes).data(), kTagBytes);
    // Two keys are kept, as datagrams may arrive in another order; a new one only if it has opened something.
    DatagramKey& kept = opening_[theirs_.NumberOf(counter) % opening_.size()];
    const bool known = kept.cipher && kept.number == theirs_.NumberOf(counter);
    DatagramKey made = known ? DatagramKey() : theirs_.Make(theirs_.NumberOf(counter));
    const DatagramKey& key = known ? kept : made;
    EVP_CIPHER_CTX* const cipher = key.cipher.get();
    const auto nonce = Nonce(key, counter);
    out.resize(hidden.size() + kTagBytes);
    int taken = 0;
    const bool genuine =
        EVP_DecryptInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
        EVP_DecryptUpdate(cipher, nullptr, &taken, Raw(about), Size(about)) == 1 &&
        EVP_DecryptUpdate(cipher, Raw(out, 0), &taken, Raw(hidden), Size(hidden)) == 1 &&
        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
        EVP_DecryptFinal_ex(cipher, Raw(out, hidden.size()), &taken) == 1;
    out.resize(hidden.size());
    if (!genuine) ERR_clear_error();
    if (!genuine || !window_.Accept(counter)) return false;
    if (!known) kept = std::move(made);
    return true;
  }

 private:
  static const unsigned char* Raw(Bytes bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }
  static unsigned char* Raw(std::vector<std::byte>& bytes, std::size_t at) {
    return reinterpret_cast<unsigned char*>(bytes.data() + at);
  }
  static int Size(Bytes bytes) { return static_cast<int>(bytes.size()); }
  static std::array<unsigned char, kSaltBytes + kCounterBytes> Nonce(const DatagramKey& key, std::uint64_t counter) {
    std::array<unsigned char, kSaltBytes + kCounterBytes> nonce;
    std::memcpy(nonce.data(), key.salt.data(), kSaltBytes);
    std::memcpy(nonce.data() + kSaltBytes, &counter, sizeof counter);
    return nonce;
  }

  DatagramKeys mine_, theirs_;
  DatagramKey sealing_;
  std::array<DatagramKey, 2> opening_;
  std::uint64_t counter_ = 0;
  ReplayWindow window_;
};

}  // namespace

std::unique_ptr<Seal> MakeSeal(std::string_view mine, std::string_view theirs, std::uint64_t datagrams_per_key) {
  return std::make_unique<AesSeal>(mine, theirs, datagrams_per_key);
}

}  // namespace geomx::io
