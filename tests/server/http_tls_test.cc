#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "core/error.h"
#include "server/http_server.h"
#include "server/server_testing.h"

namespace adder {
namespace {

using namespace adder::testing;
namespace fs = std::filesystem;

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

Key new_key() {
  return {EVP_EC_gen("P-256"), EVP_PKEY_free};
}

// Signed by its own key, for "localhost".
Certificate new_certificate(EVP_PKEY* key) {
  Certificate certificate(X509_new(), X509_free);
  X509* x = certificate.get();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  X509_gmtime_adj(X509_getm_notBefore(x), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x), 3600);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(x, X509_get_subject_name(x));
  X509_set_pubkey(x, key);
  X509_sign(x, key, EVP_sha256());
  return certificate;
}

class HttpTls : public ::testing::Test {
 protected:
  HttpTls() {
    fs::create_directory(folder_);
    FILE* file = std::fopen(path("key.pem").c_str(), "w");
    PEM_write_PrivateKey(file, key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    file = std::fopen(path("certificate.pem").c_str(), "w");
    PEM_write_X509(file, certificate_.get());
    std::fclose(file);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(client_.get()), certificate_.get());
    SSL_CTX_set_verify(client_.get(), SSL_VERIFY_PEER, nullptr);
    options_.tls_certificate = path("certificate.pem");
    options_.tls_key = path("key.pem");
  }
  ~HttpTls() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void expect_refused(const std::string& certificate, const std::string& key,
                      const std::vector<std::string>& parts) {
    HttpServerOptions options;
    options.tls_certificate = certificate;
    options.tls_key = key;
    try {
      const HttpServer server(options, echo);
      ADD_FAILURE() << "accepted " << certificate << " with " << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadInput);
      for (const std::string& part : parts) {
        EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
            << error.what();
      }
    }
  }

  fs::path folder_ = fs::temp_directory_path() / ("adder_tls_test." + std::to_string(::getpid()));
  Key key_ = new_key();
  Certificate certificate_ = new_certificate(key_.get());
  Context client_{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  HttpServerOptions options_;
};

TEST_F(HttpTls, RequestsStreamsAndLargeBodies) {
  Mailbox mail;
  HttpServer server(options_, mail.handler());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    SSL_CTX_set_min_proto_version(client_.get(), version);
    SSL_CTX_set_max_proto_version(client_.get(), version);
    Client client(server.port(), client_.get());
    ASSERT_TRUE(client.connected());
    const std::string large(3'000'000, 'x');
    std::thread sender([&] { client.send(request_text("POST", "/a", large)); });
    auto letter = mail.next();
    sender.join();
    ASSERT_TRUE(letter.reply);
    EXPECT_TRUE(letter.request.body == large);
    letter.reply->send(200, "text/plain", large);
    EXPECT_TRUE(client.receive().body == large);
    client.send(get("/b"));
    const auto reply = mail.next().reply;
    reply->begin_stream(200, "text/plain");
    EXPECT_EQ(client.receive_head().status, 200);
    for (int i = 0; i < 50; ++i) {
      reply->write("piece " + std::to_string(i));
      EXPECT_EQ(client.receive_chunk(), "piece " + std::to_string(i));
    }
    reply->end();
    EXPECT_EQ(client.receive_chunk(), std::nullopt);
    client.send(get("/c", "Connection: close\r\n"));
    mail.next().reply->send(200, "text/plain", "last");
    EXPECT_EQ(client.receive().body, "last");
    EXPECT_TRUE(client.closed());
  }
}

TEST_F(HttpTls, ClientsThatLeaveAreNoticed) {
  Mailbox mail;
  HttpServer server(options_, mail.handler());
  for (const bool hard : {false, true}) {
    Client client(server.port(), client_.get());
    ASSERT_TRUE(client.send(get("/")));
    const auto reply = mail.next().reply;
    std::atomic<int> told{0};
    reply->on_gone([&] { ++told; });
    reply->begin_stream(200, "text/plain");
    reply->write("a piece");
    EXPECT_EQ(client.receive_head().status, 200);
    hard ? client.reset() : client.close();
    EXPECT_TRUE(eventually([&] { return told == 1; }));
    for (int i = 0; i < 100; ++i) reply->write(std::string(1000, 'y'));
    reply->end();
  }
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
}

TEST_F(HttpTls, HandshakesThatAreNone) {
  options_.header_timeout = milliseconds(300);
  HttpServer server(options_, echo);
  Client plain(server.port());
  plain.send(get("/"));
  EXPECT_TRUE(plain.closed());
  Client silent(server.port());
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(silent.unread(), "");
  SSL_CTX_set_security_level(client_.get(), 0);
  SSL_CTX_set_min_proto_version(client_.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(client_.get(), TLS1_1_VERSION);
  EXPECT_FALSE(Client(server.port(), client_.get()).connected());
  SSL_CTX_set_max_proto_version(client_.get(), 0);
  EXPECT_EQ(Client(server.port(), client_.get()).ask(get("/")).status, 200);
  EXPECT_TRUE(eventually([&] { return server.stats().open == 0; }));
}

TEST_F(HttpTls, RefusalsArriveWhileTheBodyIsBeingSent) {
  options_.body_limit = 1000;
  HttpServer server(options_, echo);
  Client client(server.port(), client_.get());
  client.send(request_text("POST", "/", std::string(100'000, 'x')));
  EXPECT_EQ(client.receive().status, 413);
}

TEST_F(HttpTls, TheServerMayEndWithClientsConnected) {
  Mailbox mail;
  std::shared_ptr<HttpReply> reply;
  auto server = std::make_unique<HttpServer>(options_, mail.handler());
  Client client(server->port(), client_.get()), idle(server->port(), client_.get()),
      raw(server->port());
  client.send(get("/"));
  reply = mail.next().reply;
  reply->begin_stream(200, "text/plain");
  server.reset();
  EXPECT_TRUE(reply->gone());
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(raw.closed());
}

TEST_F(HttpTls, UnusableFilesAreNamed) {
  const std::string certificate = path("certificate.pem"), key = path("key.pem");
  expect_refused(path("missing.pem"), key,
                 {"tls_certificate: " + path("missing.pem"), "No such file or directory"});
  expect_refused(certificate, path("missing.pem"),
                 {"tls_key: " + path("missing.pem"), "No such file or directory"});
  expect_refused(key, key, {"tls_certificate: " + key, "expected a certificate in PEM form"});
  expect_refused(certificate, certificate, {"tls_key: " + certificate, "expected a private key"});
  const Key other = new_key();
  FILE* file = std::fopen(path("other.pem").c_str(), "w");
  PEM_write_PrivateKey(file, other.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  expect_refused(certificate, path("other.pem"),
                 {"tls_key: " + path("other.pem"), "expected the key of the certificate"});
  // A passphrase would be asked for on the terminal.
  file = std::fopen(path("locked.pem").c_str(), "w");
  PEM_write_PrivateKey(file, key_.get(), EVP_aes_128_cbc(),
                       reinterpret_cast<const unsigned char*>("secret"), 6, nullptr, nullptr);
  std::fclose(file);
  expect_refused(certificate, path("locked.pem"), {"tls_key: " + path("locked.pem"), "passphrase"});
}

}  // namespace
}  // namespace adder
