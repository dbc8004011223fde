// The first messages of a connection: how its two ends prove that they are of one run. See sessions.h.
#include <utility>

#include "io/keyed_hash.h"
#include "io/sessions.h"

namespace geomx::io {

std::string Sessions::ChannelOf(const Session& session) {
  return session.tls ? session.tls->Channel() : "";
}

bool Sessions::Say(Session& session, Kind kind, std::initializer_list<std::string_view> strings) {
  return WriteAlone(session.fd.get(), session.tls.get(), ControlMessage(kind, strings));
}

// ---- the called end --------------------------------------------------------------------------

// A caller that says its number gives no name.
void Sessions::Hello(Session& session, const Frame& frame) {
  std::vector<std::byte> scratch;
  const Header& header = frame.message.header;
  const bool named = header.source == kUnknownPeer;
  const auto words = header.kind == Kind::kHello
                         ? UnpackStrings(frame.message.payload.Contiguous(scratch), named ? 2 : 1)
                         : std::nullopt;
  if (!words || words->front().size() != kNonceBytes) return Refuse(session, "not a member");
  if (IsCut(header.source)) return Close(session, "nothing passes");
  session.handshake = std::make_unique<Handshake>(
      Handshake{.caller_nonce = words->front(),
                .called_nonce = MakeNonce(),
                .channel = ChannelOf(session),
                .hello = header,
                .name = named ? words->back() : ""});
  strangers_.Advance(session.id, Strangers::Said::kHello);
  if (!Say(session, Kind::kChallenge, {session.handshake->called_nonce})) {
    Close(session, "its hello cannot be answered");
  }
}

void Sessions::Proven(Session& session, const Frame& frame) {
  std::vector<std::byte> scratch;
  const Handshake& handshake = *session.handshake;
  const auto words = frame.message.header.kind == Kind::kProof
                         ? UnpackStrings(frame.message.payload.Contiguous(scratch), 1)
                         : std::nullopt;
  if (!words || !SameSecret(words->front(), handshake.Prove(token_, Caller::kYes))) {
    return Refuse(session, "not a member");
  }
  session.peer = handshake.hello.source;
  session.name = handshake.name;
  session.greeting = GreetingOf(handshake.hello);
  Settle(session, handler_.Judge(session));
}

// ---- the calling end -------------------------------------------------------------------------

// Sends the first message on a new connection.
void Sessions::Greet(Session& session) {
  const Dialing* dialing = DialingOf(session.peer);
  if (dialing == nullptr) return Close(session, "not wanted any more");
  Message hello;
  hello.header.kind = Kind::kHello;
  hello.header.source = dialing->self;
  handler_.OnGreeting();
  Greeting call = LinkOf(session.peer).frames.Call();
  call.first = mark_;
  call.late = dialing->late;
  PutGreeting(call, hello.header);
  const bool named = dialing->self == kUnknownPeer;
  session.handshake = std::make_unique<Handshake>(Handshake{.caller_nonce = MakeNonce(),
                                                            .called_nonce = {},
                                                            .channel = ChannelOf(session),
                                                            .hello = hello.header,
                                                            .name = named ? dialing->name : ""});
  const std::string& nonce = session.handshake->caller_nonce;
  hello.payload = Payload::Copy(named ? PackStrings({nonce, dialing->name}) : PackStrings({nonce}));
  if (!WriteAlone(session.fd.get(), session.tls.get(), std::move(hello))) {
    return Failed(session, "it takes no hello");
  }
  session.state = Session::State::kGreeting;
  session.reader.set_max_payload(kHelloBytes);
  Watch(session);
  ReadAgain(session);
}

// Handles what the called end says.
void Sessions::Answered(Session& session, const Frame& frame) {
  const Header& header = frame.message.header;
  std::vector<std::byte> scratch;
  const Bytes payload = frame.message.payload.Contiguous(scratch);
  if (header.kind == Kind::kDead) {
    const auto words = UnpackStrings(payload, 2);
    const NodeId peer = session.peer;
    Failed(session, words ? (*words)[1] : "a malformed refusal",
           header.round != 0 ? Dialing::Answer::kRefused : Dialing::Answer::kNone);
    if (Dialing* dialing = DialingOf(peer)) dialing->refused = true;
    return;
  }
  Handshake& handshake = *session.handshake;
  const auto words = UnpackStrings(payload, 1);
  const bool challenged = !handshake.called_nonce.empty();
  if (header.kind == Kind::kChallenge && words && !challenged && words->front().size() == kNonceBytes) {
    handshake.called_nonce = words->front();
    if (!Say(session, Kind::kProof, {handshake.Prove(token_, Caller::kYes)})) {
      Failed(session, "it takes no proof");
    }
    return;
  }
  if (header.kind != Kind::kHello || !words || !challenged) {
    return Failed(session, "no answer to a hello", Dialing::Answer::kHungUp);
  }
  if (!SameSecret(words->front(), handshake.Prove(token_, Caller::kNo, header))) {
    return Failed(session, "it does not know the token", Dialing::Answer::kHungUp);
  }
  Carry(session, GreetingOf(header));
}

}  // namespace geomx::io
