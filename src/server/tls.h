// The server's half of TLS: a certificate and its key.
#pragma once

#include <memory>
#include <string>

namespace boost::asio::ssl {
class context;
}

namespace adder {

// TLS 1.2 and later. `certificate` is a PEM file with the server's certificate first and the chain
// after it, `key` a PEM file with its private key, not encrypted. Throws Error(kBadInput) that
// names the option and the file that cannot be read or do not belong together.
std::shared_ptr<boost::asio::ssl::context> make_tls_context(const std::string& certificate,
                                                            const std::string& key);

}  // namespace adder
