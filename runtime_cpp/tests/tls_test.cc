// TLS connections: bytes arrive complete and in order for any sizes of the pieces that are written and any
// number of bytes that a socket takes. The other end is OpenSSL with a socket of its own.
#include "io/tls.h"

#if __has_include(<openssl/ssl.h>)

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/sessions.h"
#include "io/socket.h"
#include "io/tls_seal.h"
#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx::io {
namespace {

using Octets = std::vector<std::byte>;

Octets DrawnOctets(check::Random& random, std::size_t size) {
  Octets octets(size);
  for (std::byte& each : octets) each = static_cast<std::byte>(random());
  return octets;
}

// Two ends of one connection of this machine.
struct Ends {
  Fd one, other;

  Ends() {
    const Port port = Bind("127.0.0.1", 0);
    one = Connect(port.address, {});
    pollfd waiting{port.listener.get(), POLLIN, 0};
    CHECK_EQ(poll(&waiting, 1, 5000), 1);
    other = Fd(accept4(port.listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
    for (const int fd : {one.get(), other.get()}) TuneConnection(fd, "", kNever);
  }
};

// Moves `bytes` from `write` to `read`, in drawn pieces, and returns what has arrived. Both behave as
// Write and Read of TlsStream. Stops early if `read` fails.
template <class Write, class Read>
Octets Moved(check::Random& random, std::span<const std::byte> bytes, Write&& write, Read&& read) {
  Octets arrived;
  std::size_t written = 0;
  for (int idle = 0; arrived.size() < bytes.size() && idle < 20'000; ++idle) {
    if (written < bytes.size()) {
      std::vector<iovec> pieces;
      std::size_t at = written;
      for (std::size_t left = 1 + random() % 5; left > 0 && at < bytes.size(); --left) {
        const std::size_t most = random() % 2 ? 200 : 100'000;
        const std::size_t size = std::min(bytes.size() - at, std::size_t{random() % most});
        pieces.push_back({const_cast<std::byte*>(bytes.data()) + at, size});
        at += size;
      }
      if (at == written) continue;
      const ssize_t taken = write(std::span<const iovec>(pieces));
      CHECK(taken > 0 || errno == EAGAIN);
      if (taken > 0) written += static_cast<std::size_t>(taken);
      if (taken > 0) idle = 0;
    }
    Octets room(1 + random() % (random() % 2 ? 300 : 200'000));
    const ssize_t got = read(std::span(room));
    if (got == 0 || (got < 0 && errno != EAGAIN)) break;
    if (got < 0) poll(nullptr, 0, 1);
    if (got > 0) idle = 0;
    if (got > 0) arrived.insert(arrived.end(), room.begin(), room.begin() + got);
  }
  return arrived;
}

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* owned) const {
    Free(owned);
  }
};

// A node's certificate, signed by itself: an authority of one node.
TlsFiles Certificates(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, Freed<X509_free>> made(X509_new());
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_set_pubkey(made.get(), key.get());
  X509_NAME* name = X509_get_subject_name(made.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("x"), -1,
                             -1, 0);
  X509_set_issuer_name(made.get(), name);
  const std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>> uri(
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "URI:geomx:east%2Fworker0"));
  X509_add_ext(made.get(), uri.get(), -1);
  CHECK(X509_sign(made.get(), key.get(), EVP_sha256()) > 0);
  const TlsFiles files{folder / "all.pem", folder / "all.pem", folder / "all.pem"};
  FILE* file = std::fopen(files.key.c_str(), "w");
  PEM_write_X509(file, made.get());
  PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  return files;
}

// Our stream at one end, OpenSSL's at the other.
struct Mixed {
  Ends ends;
  std::unique_ptr<TlsStream> ours;
  std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context{SSL_CTX_new(TLS_method())};
  std::unique_ptr<SSL, Freed<SSL_free>> theirs;
  std::size_t refused = 0;  // bytes of the latest write

  Mixed(const TlsFiles& files, Tls& tls, bool calls, const char* suites) {
    SSL_CTX_set_ciphersuites(context.get(), suites);
    SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_set_block_padding(context.get(), 1000);
    theirs.reset(SSL_new(context.get()));
    SSL_set_mode(theirs.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_set_fd(theirs.get(), ends.other.get());
    ours = calls ? tls.Call(ends.one.get()) : tls.Answer(ends.one.get());
    calls ? SSL_set_accept_state(theirs.get()) : SSL_set_connect_state(theirs.get());
    bool done = false, their_done = false;
    for (int tries = 0; !(done && their_done) && tries < 5000; ++tries) {
      if (!done) done = ours->Handshake() == TlsStream::Step::kDone;
      if (!their_done) their_done = SSL_do_handshake(theirs.get()) == 1;
      poll(nullptr, 0, 1);
    }
    CHECK(done && their_done);
  }

  // After EAGAIN OpenSSL must be given as many bytes as before. REQUIRES: some of `pieces` are not empty.
  ssize_t Write(std::span<const iovec> pieces) {
    while (pieces.front().iov_len == 0) pieces = pieces.subspan(1);
    if (refused == 0) refused = pieces.front().iov_len;
    std::size_t taken = 0;
    const int done = SSL_write_ex(theirs.get(), pieces.front().iov_base, refused, &taken);
    if (done == 1) refused = 0;
    return Result(done, taken);
  }
  ssize_t Read(std::span<std::byte> room) {
    std::size_t got = 0;
    const int done = SSL_read_ex(theirs.get(), room.data(), room.size(), &got);
    return Result(done, got);
  }
  ssize_t Result(int done, std::size_t bytes) {
    if (done == 1) return static_cast<ssize_t>(bytes);
    const int error = SSL_get_error(theirs.get(), done);
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
  }
};

}  // namespace

// No byte of an altered record is passed on, nor any after it.
TEST(tls_ends_at_a_record_that_was_altered) {
  const auto folder = std::filesystem::temp_directory_path() / ("geomx-tls-" + std::to_string(getpid()));
  const TlsFiles files = Certificates(folder);
  const auto tls = OpenTls(files);
  check::ForSeeds(10, [&](std::uint64_t seed) {
    check::Random random(seed);
    const Octets bytes = DrawnOctets(random, 3000);
    Mixed mixed(files, *tls, seed % 2 == 0, "TLS_AES_128_GCM_SHA256");
    BIO* const made = BIO_new(BIO_s_mem());
    SSL_set_block_padding(mixed.theirs.get(), 0);
    SSL_set0_wbio(mixed.theirs.get(), made);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK_EQ(SSL_write(mixed.theirs.get(), bytes.data() + 1000 * i, 1000), 1000);
    }
    constexpr std::size_t kRecord = 5 + 1000 + 1 + 16;
    std::vector<unsigned char> wire(3 * kRecord);
    CHECK_EQ(BIO_read(made, wire.data(), static_cast<int>(wire.size())), static_cast<int>(wire.size()));
    const std::size_t at = kRecord + (seed <= 5 ? seed - 1 : random() % kRecord);
    wire[at] ^= static_cast<unsigned char>(1 + random() % 255);
    CHECK_EQ(send(mixed.ends.other.get(), wire.data(), wire.size(), 0),
             static_cast<ssize_t>(wire.size()));
    ::shutdown(mixed.ends.other.get(), SHUT_WR);
    Octets room(3000);
    ssize_t got = -1;
    for (int tries = 0; got < 0 && tries < 5000; ++tries) {
      got = mixed.ours->Read(room);
      if (got < 0) poll(nullptr, 0, 1);
    }
    CHECK_EQ(got, 1000);
    CHECK(std::equal(bytes.begin(), bytes.begin() + 1000, room.begin()));
    do {
      got = mixed.ours->Read(room);  // a longer length waits for bytes: the stream ends
    } while (got < 0 && errno == EAGAIN);
    CHECK(got == 0 || (got < 0 && errno == EPROTO && mixed.ours->error().starts_with("TLS: ")));
    if (got < 0) {  // what is told of the connection is TLS's reason
      const std::string reason = mixed.ours->error();
      Session session;
      session.tls = std::move(mixed.ours);
      errno = EPROTO;
      CHECK_EQ(Sessions::ErrorOf(session), reason);
      errno = ECONNRESET;
      CHECK_EQ(Sessions::ErrorOf(session), "Connection reset by peer");
      return;
    }
    CHECK(mixed.ours->Read(room) <= 0);
  });
  std::filesystem::remove_all(folder);
}

// Keys of datagrams change, also where datagrams are lost or arrive in another order.
TEST(tls_seals_change_their_keys) {
  constexpr std::uint64_t kPerKey = 10;
  const std::string one(kSealSecretBytes, 'a'), other(kSealSecretBytes, 'b');
  const std::string about = "about", text = "text";
  const auto bytes = [](const std::string& some) { return std::as_bytes(std::span(some)); };
  const auto sealer = MakeSeal(one, other, kPerKey), opener = MakeSeal(other, one, kPerKey);
  const auto patient = MakeSeal(other, one, 3 * kPerKey);
  const auto opens = [&](Seal& seal, const Octets& sealed) {
    Octets opened;
    return seal.Open(bytes(about), sealed, opened) && std::ranges::equal(opened, bytes(text));
  };
  std::vector<Octets> sealed(5 * kPerKey);
  for (Octets& each : sealed) {
    const Bytes parts[] = {bytes(text)};
    sealer->Close(bytes(about), parts, each);
  }
  for (std::size_t i = 0; i < 3 * kPerKey; ++i) CHECK_EQ(opens(*patient, sealed[i]), i < kPerKey);
  std::vector<std::size_t> order = {7, 11, 9, 10, 8, 30, 29, 49, 12, 0};
  for (const std::size_t i : order) {
    Octets forged = sealed[i];
    forged.back() ^= std::byte{1};
    CHECK(!opens(*opener, forged));
    CHECK(opens(*opener, sealed[i]));
    CHECK(!opens(*opener, sealed[i]));
  }
  Octets renumbered = sealed[13];
  renumbered[0] = std::byte{23};  // the counter comes first
  CHECK(!opens(*opener, renumbered));
}

TEST(tls_carries_any_pieces_to_and_from_openssl) {
  check::Random random(1);
  const auto folder = std::filesystem::temp_directory_path() / ("geomx-tls-" + std::to_string(getpid()));
  const TlsFiles files = Certificates(folder);
  const auto tls = OpenTls(files, {.records = 7});  // keys change often
  int held = 0;
  for (const bool calls : {false, true}) {
    for (const char* suite : {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
                              "TLS_CHACHA20_POLY1305_SHA256"}) {
      Mixed mixed(files, *tls, calls, suite);
      CHECK(mixed.ours->Peer().names == std::vector<std::string>{"east/worker0"});
      const int little = 20'000;
      setsockopt(mixed.ends.one.get(), SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
      const auto write = [&](std::span<const iovec> pieces) {
        const ssize_t taken = mixed.ours->Write(pieces);
        held += mixed.ours->Holds() ? 1 : 0;
        return taken;
      };
      const auto read = [&](std::span<std::byte> room) { return mixed.ours->Read(room); };
      const auto their_write = [&](std::span<const iovec> pieces) { return mixed.Write(pieces); };
      const auto their_read = [&](std::span<std::byte> room) { return mixed.Read(room); };
      for (int turn = 0; turn < 3; ++turn) {
        const Octets bytes = DrawnOctets(random, 300'000);
        CHECK(Moved(random, bytes, write, their_read) == bytes);
        SSL_key_update(mixed.theirs.get(),
                       turn == 0 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
        CHECK(Moved(random, bytes, their_write, read) == bytes);
      }
      SSL_shutdown(mixed.theirs.get());
      std::byte last;
      ssize_t end = -1;
      for (int tries = 0; end < 0 && tries < 5000; ++tries) {
        end = mixed.ours->Read({&last, 1});
        if (end < 0) poll(nullptr, 0, 1);
      }
      CHECK_EQ(end, 0);
    }
  }
  CHECK(held > 20);  // sockets took a part
  std::filesystem::remove_all(folder);
}

}  // namespace geomx::io

#endif
