// Two ends of a connection prove to each other that they know the run's token, without sending it.
//
// Each end draws a nonce, and proves by an HMAC under the token over both nonces, its role in the
// call, its `hello`, and what identifies the encrypted channel (RFC 9266), if there is one. A proof
// is therefore good for one connection, one direction and one greeting: recorded bytes cannot be
// used again, nor a proof be sent back to its maker. Who listens can try out tokens, so a token is
// random: launchers draw 128 bits.
#pragma once

#include <string>
#include <string_view>

#include "core/message.h"

namespace geomx::io {

inline constexpr std::size_t kNonceBytes = 32;

// Random bytes of the operating system.
std::string MakeNonce();

enum class Caller : bool { kNo, kYes };

// What both ends of one connection know.
struct Handshake {
  std::string caller_nonce, called_nonce;
  std::string channel;  // empty: not encrypted
  Header hello;         // of the calling end
  std::string name;     // of the calling end, if it says so

  // The proof of the end that calls, or of the one that is called and answers with `answer`.
  std::string Prove(std::string_view token, Caller caller, const Header& answer = {}) const;
};

}  // namespace geomx::io
