#include "io/proof.h"

#include <sys/random.h>

#include <cerrno>
#include <stdexcept>

#include "io/sha256.h"
#include "io/socket.h"

namespace geomx::io {
namespace {

std::string TextOf(Header header) {
  header.payload_bytes = 0;  // proofs are payload themselves
  const WireHeader bytes = SerializeHeader(header);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string MakeNonce() {
  std::string nonce(kNonceBytes, '\0');
  std::size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got > 0) filled += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) {
      throw std::runtime_error("cannot draw random bytes: " + ErrorText(errno));
    }
  }
  return nonce;
}

std::string Handshake::Prove(std::string_view token, Caller caller, const Header& answer) const {
  const bool calls = caller == Caller::kYes;
  const auto packed = PackStrings({calls ? "geomx caller" : "geomx called", caller_nonce, called_nonce,
                                   channel, TextOf(hello), name, calls ? "" : TextOf(answer)});
  const Hash hash = HmacSha256(
      token, {reinterpret_cast<const char*>(packed.data()), packed.size()});
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

}  // namespace geomx::io
