#include "server/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace adder {
namespace {

// The newest reason in OpenSSL's list of errors, which is emptied.
std::string reason() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* text = ERR_reason_error_string(code);
  if (text != nullptr) return text;
  return code == 0 ? "unknown reason" : fmt::format("OpenSSL error {:#x}", code);
}

// Without this OpenSSL would ask for a passphrase on the terminal.
int no_passphrase(char*, int, int, void*) {
  return 0;
}

// OpenSSL itself only says "system lib".
void require_readable(std::string_view option, const std::string& file) {
  ADDER_CHECK(::access(file.c_str(), R_OK) == 0, "{}: {}: cannot read: {}", option, file,
              std::strerror(errno));
}

}  // namespace

std::shared_ptr<boost::asio::ssl::context> make_tls_context(const std::string& certificate,
                                                            const std::string& key) {
  require_readable("tls_certificate", certificate);
  require_readable("tls_key", key);
  ERR_clear_error();
  using Context = boost::asio::ssl::context;
  auto context = std::make_shared<Context>(Context::tls_server);
  SSL_CTX* const raw = context->native_handle();  // whose errors say more than Asio's
  if (SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) != 1) {
    fail(ErrorCode::kInternal, "TLS: {}", reason());
  }
  // A client that renegotiates all the time would cost much and gain nothing.
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(raw, no_passphrase);
  if (SSL_CTX_use_certificate_chain_file(raw, certificate.c_str()) != 1) {
    bad_input("tls_certificate: {}: expected a certificate in PEM form: {}", certificate, reason());
  }
  if (SSL_CTX_use_PrivateKey_file(raw, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    const int code = ERR_GET_REASON(ERR_peek_last_error());
    const bool other = code == X509_R_KEY_VALUES_MISMATCH || code == X509_R_KEY_TYPE_MISMATCH;
    bad_input("tls_key: {}: expected {}: {}", key,
              other ? "the key of the certificate " + certificate
                    : "a private key in PEM form without a passphrase",
              reason());
  }
  ADDER_CHECK(SSL_CTX_check_private_key(raw) == 1,
              "tls_key: {}: expected the key of the certificate {}: {}", key, certificate,
              reason());
  return context;
}

}  // namespace adder
