#include "io/sha256.h"

#include <openssl/evp.h>

#include <iterator>

#include "core/error.h"

namespace adder {

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_) fail(ErrorCode::kInternal, "SHA-256: OpenSSL gave no context");
  reset();
}

void Sha256::reset() {
  if (EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
    fail(ErrorCode::kInternal, "SHA-256: this OpenSSL does not offer it");
  }
}

void Sha256::update(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1) {
    fail(ErrorCode::kInternal, "SHA-256: OpenSSL refused {} bytes", bytes.size());
  }
}

std::array<std::byte, 32> Sha256::finish_bytes() {
  std::array<std::byte, 32> digest{};
  auto* out = reinterpret_cast<unsigned char*>(digest.data());
  if (EVP_DigestFinal_ex(context_.get(), out, nullptr) != 1) {
    fail(ErrorCode::kInternal, "SHA-256: OpenSSL did not finish");
  }
  reset();
  return digest;
}

std::string Sha256::finish() {
  std::string hex;
  for (const std::byte byte : finish_bytes()) {
    fmt::format_to(std::back_inserter(hex), "{:02x}", static_cast<unsigned>(byte));
  }
  return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

}  // namespace adder
