// A caller at a node's port that speaks the protocol of connections by hand.
#pragma once

#include <sys/time.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/proof.h"
#include "io/tcp.h"
#include "tests/check.h"

namespace geomx::io {

// Strings of a message's payload; none if they are not as many.
inline std::vector<std::string> WordsOf(const Message& message, std::size_t count) {
  std::vector<std::byte> scratch;
  return UnpackStrings(message.payload.Contiguous(scratch), count).value_or(std::vector<std::string>{});
}

class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const Address target = Resolve(address);
    fd_ = Fd(socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    CHECK_EQ(connect(fd_.get(), target.get(), target.length), 0);
  }
  // The other end of a connection that was accepted.
  explicit Stranger(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  void Say(Message message) { WriteAlone(fd_.get(), nullptr, std::move(message)); }

  // Nothing once the connection has ended.
  std::optional<Message> Hear() {
    while (true) {
      const auto room = reader_.Room();
      const ssize_t got = read(fd_.get(), room.data(), room.size());
      if (got <= 0) return std::nullopt;
      heard_.append(reinterpret_cast<const char*>(room.data()), static_cast<std::size_t>(got));
      switch (reader_.Filled(static_cast<std::size_t>(got))) {
        case FrameReader::Outcome::kMore: break;
        case FrameReader::Outcome::kError: return std::nullopt;
        case FrameReader::Outcome::kFrame: return reader_.Take().message;
      }
    }
  }
  // All bytes that were heard.
  const std::string& heard() const { return heard_; }

  // Says hello, and hears the challenge. Returns false if there is none.
  bool Greet(Header hello, const std::string& name = {}) {
    hello.kind = Kind::kHello;
    shake = {.caller_nonce = MakeNonce(), .called_nonce = {}, .channel = {}, .hello = hello, .name = name};
    Message message{.header = hello, .payload = {}};
    message.payload = Payload::Copy(name.empty() ? PackStrings({shake.caller_nonce})
                                                 : PackStrings({shake.caller_nonce, name}));
    Say(std::move(message));
    const auto challenge = Hear();
    if (!challenge || challenge->header.kind != Kind::kChallenge) return false;
    const auto words = WordsOf(*challenge, 1);
    if (words.empty()) return false;
    shake.called_nonce = words.front();
    return true;
  }
  // Proves, and returns the answer: a hello, or the reason of a refusal.
  std::pair<Kind, std::string> Prove(const std::string& proof) {
    Say(ControlMessage(Kind::kProof, {proof}));
    const auto answer = Hear();
    if (!answer) return {Kind::kClosing, "nothing"};
    if (answer->header.kind == Kind::kDead) return {Kind::kDead, WordsOf(*answer, 2).at(1)};
    greeting = GreetingOf(answer->header);
    CHECK_EQ(WordsOf(*answer, 1).at(0), shake.Prove(token_, Caller::kNo, answer->header));
    return {answer->header.kind, ""};
  }
  std::pair<Kind, std::string> Prove() { return Prove(shake.Prove(token_, Caller::kYes)); }
  // Lets in the caller of an accepted connection, as its process with this incarnation. Returns false if it
  // is not one that knows the token.
  bool Admit(std::uint32_t incarnation) {
    const auto hello = Hear();
    if (!hello || hello->header.kind != Kind::kHello) return false;
    const bool named = hello->header.source == kUnknownPeer;
    const auto words = WordsOf(*hello, named ? 2 : 1);
    if (words.empty()) return false;
    shake = {.caller_nonce = words.front(), .called_nonce = MakeNonce(), .channel = {}, .hello = hello->header,
             .name = named ? words.back() : ""};
    Say(ControlMessage(Kind::kChallenge, {shake.called_nonce}));
    const auto proof = Hear();
    if (!proof || WordsOf(*proof, 1) != std::vector{shake.Prove(token_, Caller::kYes)}) return false;
    Message answer = ControlMessage(Kind::kHello);
    PutGreeting({.incarnation = incarnation, .attempt = GreetingOf(hello->header).attempt}, answer.header);
    answer.payload = Payload::Copy(PackStrings({shake.Prove(token_, Caller::kNo, answer.header)}));
    Say(std::move(answer));
    return true;
  }
  void KnowToken(std::string token) { token_ = std::move(token); }

  Handshake shake;
  Greeting greeting;  // of the answer

 private:
  Fd fd_;
  FrameReader reader_{1 << 20};
  std::string heard_, token_;
};

}  // namespace geomx::io
