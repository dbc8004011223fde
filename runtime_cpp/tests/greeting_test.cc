// How connections begin: the token is proven and never sent, and a proof serves once.
#include <sys/resource.h>

#include <algorithm>
#include <random>

#include "io/sha256.h"
#include "tests/loops.h"
#include "tests/seeds.h"
#include "tests/stranger.h"

namespace geomx::io {
namespace {

std::string Hex(const Hash& hash) {
  std::string hex;
  for (const std::byte byte : hash) {
    for (const int shift : {4, 0}) hex += "0123456789abcdef"[std::to_integer<int>(byte) >> shift & 15];
  }
  return hex;
}

Header HelloOf(NodeId node) {
  Header hello;
  hello.kind = Kind::kHello;
  hello.source = node;
  PutGreeting({.incarnation = 1, .attempt = 1000, .received = 0, .first = 0}, hello);
  return hello;
}

}  // namespace

// FIPS 180-4's examples and RFC 4231's, cases 2 and 6.
TEST(greeting_hashes_are_the_standards) {
  CHECK_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(Hex(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
           "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                          "Test Using Larger Than Block-Size Key - Hash Key First")),
           "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// A process that answers a caller learns nothing that lets it in elsewhere, and is not believed.
TEST(greeting_never_sends_the_token) {
  const std::string token = "a token that is a secret";
  const Port port = Bind(kOwnHost, 0, false);
  Loop caller(kOwnHost, 0, token), scheduler(kOwnHost, 0, token);
  caller.StartJoin(Format(port.address), "worker0", std::nullopt, kPatience);
  Fd fd;
  while (!fd) fd = Fd(accept(port.listener.get(), nullptr, nullptr));
  Stranger thief(std::move(fd));
  const auto hello = thief.Hear();
  CHECK(hello && hello->header.kind == Kind::kHello);
  if (!hello) return;

  Stranger stranger(scheduler.address());  // hands on what it hears, in both directions
  const auto words = WordsOf(*hello, 2);
  CHECK_EQ(words.size(), 2u);
  if (words.size() < 2) return;
  CHECK_EQ(words[1], "worker0");
  CHECK(stranger.Greet(hello->header, words[1]));
  thief.Say(ControlMessage(Kind::kChallenge, {stranger.shake.called_nonce}));
  const auto proof = thief.Hear();
  CHECK(proof && proof->header.kind == Kind::kProof);
  if (!proof) return;
  // It answers another nonce than that of the stranger's own hello.
  CHECK_EQ(stranger.Prove(WordsOf(*proof, 1).at(0)).second, "not a member");
  CHECK(thief.heard().find(token) == std::string::npos);
  Message answer = ControlMessage(Kind::kHello, {std::string(32, 'x')});
  thief.Say(std::move(answer));
  std::string error;
  try {
    caller.WaitJoined(kPatience);
  } catch (const std::runtime_error& refused) {
    error = refused.what();
  }
  CHECK(error.find("it does not know the token") != std::string::npos);
  CHECK_EQ(scheduler.GetReport().refused_callers, 1u);
}

// Everything about a hello is proven; a proof of another connection, direction or token is none.
TEST(greeting_forgeries_are_refused) {
  Cluster cluster;
  cluster.Start();
  const std::string address = cluster.loops[Cluster::kServers]->address();
  std::string last;
  std::uint64_t refused = 0;
  check::ForSeeds(60, [&](std::uint64_t seed) {
    check::Random random(seed);
    Stranger stranger(address);
    stranger.KnowToken(kToken);
    const NodeId node = Cluster::kWorkers + static_cast<NodeId>(check::Between(random, 0, 1));
    Header said = HelloOf(node);
    if (!stranger.Greet(said)) return check::Report(__FILE__, __LINE__, "no challenge");
    Handshake& shake = stranger.shake;
    std::string token = kToken;
    Caller role = Caller::kYes;
    switch (check::Between(random, 0, 7)) {
      case 0: token = ""; break;
      case 1: token += "x"; break;
      case 2: shake.caller_nonce[check::Between(random, 0, 31)] ^= 1; break;
      case 3: shake.called_nonce[check::Between(random, 0, 31)] ^= 1; break;
      case 4: shake.hello.source = 9; break;
      case 5: shake.hello.round += 1; break;
      case 6: shake.name = "worker0"; break;
      default: role = Caller::kNo;
    }
    std::string proof = shake.Prove(token, role);
    if (check::Chance(random, 0.2) && !last.empty()) proof = last;
    if (check::Chance(random, 0.2)) proof.resize(check::Between(random, 0, 64));
    last = stranger.shake.Prove(kToken, Caller::kYes);
    const auto [kind, reason] = stranger.Prove(proof);
    CHECK(kind == Kind::kDead);
    CHECK_EQ(reason, "not a member");
    ++refused;
  });
  // The same without forgery is let in as far as the token goes.
  Stranger member(address);
  member.KnowToken(kToken);
  CHECK(member.Greet(HelloOf(Cluster::kWorkers + 2)));
  CHECK_EQ(member.Prove().second, "not a peer of this node");
  // Messages of a handshake have no place in a connection that carries a link.
  cluster.Declare(0, 10, {{.elements = 10}});
  CheckSums(cluster.PushAll(0, 10, 1.0f), 1.0f);
  cluster.Stop();
  CHECK_EQ(cluster.loops[Cluster::kServers]->GetReport().refused_callers, refused + 1);
}

// Members may call before a node knows who its peers are. Those that wait give way when it cannot open more
// files, so one of them cannot keep others out.
TEST(greeting_callers_that_wait_make_room) {
  const Loop loop(kOwnHost, 0, kToken);
  const Address target = Resolve(loop.address());
  std::vector<Fd> sockets;
  for (int i = 0; i < 10; ++i) {
    Fd& fd = sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(Fd(dup(sockets.back().get())).get()) + 5;  // five more
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Stranger> callers;
  for (NodeId node = 0; node < 10; ++node) {
    CHECK_EQ(connect(sockets[node].get(), target.get(), target.length), 0);
    Stranger& caller = callers.emplace_back(std::move(sockets[node]));
    caller.KnowToken(kToken);
    if (!caller.Greet(HelloOf(node))) {
      check::Report(__FILE__, __LINE__, "no challenge");
      break;
    }
    caller.Say(ControlMessage(Kind::kProof, {caller.shake.Prove(kToken, Caller::kYes)}));
  }
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto told = callers.front().Hear();
  CHECK(told && told->header.kind == Kind::kDead && told->header.round == 0);  // it may call again
  if (told) CHECK(WordsOf(*told, 2).at(1).starts_with("too many open files"));
}

// Nearly right messages in any order: a connection that is not proven carries nothing.
TEST(greeting_random_words_let_nobody_in) {
  Loop loop(kOwnHost, 0, kToken);
  check::ForSeeds(60, [&](std::uint64_t seed) {
    check::Random random(seed);
    Stranger stranger(loop.address());
    if (check::Chance(random, 0.5)) stranger.Greet(HelloOf(5), check::Chance(random, 0.5) ? "worker0" : "");
    for (std::uint64_t i = check::Between(random, 1, 4); i > 0; --i) {
      Message message = ControlMessage(static_cast<Kind>(check::Between(random, 0, kKinds - 1)));
      message.header.source = check::Chance(random, 0.5) ? UINT32_MAX : 5;
      message.header.shard_elements = message.header.slices = message.header.merge_count = 1;
      std::string text(check::Chance(random, 0.5) ? 32 : check::Between(random, 0, 5000), 'x');
      for (char& each : text) each = static_cast<char>(random());
      message.payload = Payload::Copy(check::Chance(random, 0.5) ? PackStrings({text})
                                                                 : PackStrings({text, "worker0"}));
      stranger.Say(std::move(message));
    }
    while (const auto answer = stranger.Hear()) {
      CHECK(answer->header.kind == Kind::kChallenge || answer->header.kind == Kind::kDead);
    }
  });
}

}  // namespace geomx::io
