// tls.h in a build without OpenSSL: OpenTls throws an error that says so.
#include <stdexcept>

#include "io/tls.h"

namespace geomx::io {

std::unique_ptr<Tls> OpenTls(const TlsFiles&, const KeyBounds&) {
  throw std::runtime_error(
      "this geomx was built without OpenSSL and has no TLS: install OpenSSL's headers (libssl-dev, "
      "openssl-devel) and build it again");
}

std::string TlsBuild() { return "no_openssl"; }

}  // namespace geomx::io
