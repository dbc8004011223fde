#include "io/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string_view>

#include "io/tls_seal.h"
#include "io/tls_socket.h"
#include "io/tls_suites.h"

namespace geomx::io {
namespace {

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::string_view kNameScheme = "geomx:";
constexpr std::string_view kSchedulerUri = "geomx-role:scheduler";
constexpr std::string_view kExportLabel = "EXPORTER-geomx-datagrams";
constexpr std::string_view kChannelLabel = "EXPORTER-Channel-Binding";

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* owned) const {
    Free(owned);
  }
};
using Context = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Freer<SSL_free>>;

// Takes the oldest error of OpenSSL's queue and clears the queue.
std::string TakeError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown TLS error";
}

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::string PercentDecoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
                         HexDigit(text[i + 2]) >= 0;
    plain += escaped ? static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])) : text[i];
    if (escaped) i += 2;
  }
  return plain;
}

// ---- connections -----------------------------------------------------------------------------

class OpenSslStream final : public TlsStream {
 public:
  OpenSslStream(SSL_CTX* context, TlsSocket::Spare spare, const KeyBounds& bounds, int fd, bool calls)
      : socket_(fd, std::move(spare)), ssl_(SSL_new(context)), bounds_(bounds), calls_(calls) {
    BIO* const bio = ssl_ ? socket_.NewBio() : nullptr;
    if (bio == nullptr) throw std::runtime_error("cannot begin TLS: " + TakeError());
    SSL_set_bio(ssl_.get(), bio, bio);
    if (calls) {
      SSL_set_connect_state(ssl_.get());
    } else {
      SSL_set_accept_state(ssl_.get());
    }
  }

  Step Handshake() override {
    ERR_clear_error();
    errno = 0;
    const int done = SSL_do_handshake(ssl_.get());
    if (done == 1) {
      socket_.Establish();
      return Step::kDone;
    }
    switch (SSL_get_error(ssl_.get(), done)) {
      case SSL_ERROR_WANT_READ: return Step::kWantsRead;
      case SSL_ERROR_WANT_WRITE: return Step::kWantsWrite;
      case SSL_ERROR_SSL: break;
      default: error_ = "the connection ended during the TLS handshake"; return Step::kLost;
    }
    const long verdict = SSL_get_verify_result(ssl_.get());
    const std::string reason = TakeError();
    if (reason.find("unexpected eof") != std::string::npos) {
      error_ = "the connection ended during the TLS handshake";
      return Step::kLost;
    }
    error_ = "TLS: " + reason;
    if (verdict != X509_V_OK) error_ += std::string(" (") + X509_verify_cert_error_string(verdict) + ")";
    return Step::kRefused;
  }

  ssize_t Read(std::span<std::byte> room) override {
    ERR_clear_error();
    errno = 0;
    std::size_t got = 0;
    if (SSL_read_ex(ssl_.get(), room.data(), room.size(), &got) == 1) {
      return static_cast<ssize_t>(got);
    }
    return Failed();
  }

  ssize_t Write(std::span<const iovec> pieces) override {
    if (records_.empty()) {
      if (!socket_.Flush()) return -1;  // what OpenSSL has to say itself
      const int error = Encrypt(pieces);
      if (error != 0 && records_.empty()) {
        errno = error;
        return -1;
      }
    }
    const bool flushed = socket_.Flush();
    std::size_t taken = 0;
    while (!records_.empty() && (flushed || records_.front().end <= socket_.sent())) {
      taken += records_.front().bytes;
      records_.pop_front();
    }
    return taken > 0 || flushed ? static_cast<ssize_t>(taken) : -1;
  }

  bool Holds() const override { return !records_.empty(); }

  Certified Peer() const override {
    Certified peer;
    const std::unique_ptr<X509, Freer<X509_free>> certificate(SSL_get1_peer_certificate(ssl_.get()));
    if (!certificate) return peer;
    const std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>> names(static_cast<GENERAL_NAMES*>(
        X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
      const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
      if (name->type != GEN_URI) continue;
      const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
      const std::string_view uri(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                                 static_cast<std::size_t>(ASN1_STRING_length(text)));
      if (uri == kSchedulerUri) peer.scheduler = true;
      if (uri.starts_with(kNameScheme)) peer.names.push_back(PercentDecoded(uri.substr(kNameScheme.size())));
    }
    return peer;
  }

  std::string Channel() const override { return Export(kChannelLabel, 32); }

  std::unique_ptr<Seal> MakeSeal() override {
    const std::string both = Export(kExportLabel, 2 * kSealSecretBytes);
    const std::string_view calling = std::string_view(both).substr(0, kSealSecretBytes);
    const std::string_view called = std::string_view(both).substr(kSealSecretBytes);
    return io::MakeSeal(calls_ ? calling : called, calls_ ? called : calling, bounds_.datagrams);
  }

  const std::string& error() const override { return error_; }

 private:
  struct Record {
    std::uint64_t end;  // behind it, in what the socket collects
    std::size_t bytes;  // plain
  };

  // Encrypts up to kMostBytes of `pieces` into full records. Returns 0, or errno if it ended early.
  int Encrypt(std::span<const iovec> pieces) {
    std::array<std::byte, kRecordBytes> gathered;
    std::size_t passed = 0;  // of the first piece
    for (std::size_t all = 0; all < kMostBytes;) {
      Bytes record;
      while (!pieces.empty() && record.size() < kRecordBytes) {
        const Bytes piece = Bytes{static_cast<const std::byte*>(pieces[0].iov_base), pieces[0].iov_len};
        const Bytes part = piece.subspan(passed).first(
            std::min(piece.size() - passed, kRecordBytes - record.size()));
        if (record.empty() && (part.size() == kRecordBytes || pieces.size() == 1)) {
          record = part;  // it need not be gathered
        } else {
          std::memcpy(gathered.data() + record.size(), part.data(), part.size());
          record = {gathered.data(), record.size() + part.size()};
        }
        passed += part.size();
        if (passed < piece.size()) break;
        pieces = pieces.subspan(1);
        passed = 0;
      }
      if (record.empty()) return 0;
      ERR_clear_error();
      errno = 0;
      if (of_key_ >= bounds_.records) {
        if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
          return Failed() < 0 ? errno : EPIPE;
        }
        of_key_ = 0;
      }
      std::size_t taken = 0;
      if (SSL_write_ex(ssl_.get(), record.data(), record.size(), &taken) != 1) {
        return Failed() < 0 ? errno : EPIPE;
      }
      ++of_key_;
      records_.push_back({socket_.collected(), taken});
      all += taken;
    }
    return 0;
  }

  std::string Export(std::string_view label, std::size_t bytes) const {
    std::string secret(bytes, '\0');
    if (SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(secret.data()), bytes,
                                   label.data(), label.size(), nullptr, 0, 0) != 1) {
      throw std::runtime_error("cannot derive keys from a connection: " + TakeError());
    }
    return secret;
  }

  // After a call that moved nothing: 0 at the end of the stream, else -1 and errno.
  ssize_t Failed() {
    const int system = errno;
    switch (SSL_get_error(ssl_.get(), 0)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
      case SSL_ERROR_ZERO_RETURN: return 0;
      case SSL_ERROR_SYSCALL:
        if (system == 0) return 0;
        errno = system;
        return -1;
      default: break;
    }
    const std::string reason = TakeError();
    if (reason.find("unexpected eof") != std::string::npos) return 0;
    error_ = "TLS: " + reason;
    errno = EPROTO;
    return -1;
  }

  TlsSocket socket_;
  Connection ssl_;              // uses the socket
  std::deque<Record> records_;  // that the socket holds
  const KeyBounds bounds_;
  std::uint64_t of_key_ = 0;  // records
  const bool calls_;
  std::string error_;
};

class OpenSslTls final : public Tls {
 public:
  OpenSslTls(const TlsFiles& files, const KeyBounds& bounds)
      : context_(SSL_CTX_new(TLS_method())), bounds_(bounds) {
    SSL_CTX* context = context_.get();
    Check(context != nullptr, "OpenSSL");
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    Check(SSL_CTX_set_ciphersuites(context, SuitesBySpeed().c_str()) == 1, "OpenSSL's ciphers");
    SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    // Every connection verifies certificates: no session resumption, no early data.
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_quiet_shutdown(context, 1);
    SSL_CTX_set_read_ahead(context, 0);  // OpenSSL would move the rest of what it read at each record
    Check(SSL_CTX_load_verify_locations(context, files.authority.c_str(), nullptr) == 1,
          files.authority);
    Check(SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) == 1,
          files.certificate);
    Check(SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) == 1, files.key);
    Check(SSL_CTX_check_private_key(context) == 1, files.key);
  }

  std::unique_ptr<TlsStream> Answer(int fd) override {
    return std::make_unique<OpenSslStream>(context_.get(), spare_, bounds_, fd, false);
  }
  std::unique_ptr<TlsStream> Call(int fd) override {
    return std::make_unique<OpenSslStream>(context_.get(), spare_, bounds_, fd, true);
  }

 private:
  static void Check(bool done, const std::string& what) {
    if (!done) throw std::runtime_error("TLS cannot use " + what + ": " + TakeError());
  }

  Context context_;
  const KeyBounds bounds_;
  const TlsSocket::Spare spare_ = std::make_shared<std::vector<std::byte>>();
};

}  // namespace

std::unique_ptr<Tls> OpenTls(const TlsFiles& files, const KeyBounds& bounds) {
  return std::make_unique<OpenSslTls>(files, bounds);
}

std::string TlsBuild() { return std::string("openssl ") + OpenSSL_version(OPENSSL_VERSION_STRING); }

}  // namespace geomx::io
