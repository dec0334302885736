// SHA-256 of a stream of bytes (FIPS 180-4), by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace adder {

class Sha256 {
 public:
  Sha256();  // throws Error(kInternal) when OpenSSL has no SHA-256

  void update(std::span<const std::byte> bytes);
  // The digest of everything so far; the hash is then ready for a new stream.
  std::array<std::byte, 32> finish_bytes();
  std::string finish();  // the same as 64 lower-case hex digits
  void reset();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace adder
