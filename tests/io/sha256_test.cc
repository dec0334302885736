#include "io/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace adder {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The examples of FIPS 180-4's test vectors.
TEST(Sha256, GivesTheStandardsExamples) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(bytes_of(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  for (const size_t piece : {1, 63, 64, 65, 999}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece)
      hash.update(bytes_of(text.substr(at, piece)));
    EXPECT_EQ(hash.finish(), sha256_hex(bytes_of(text))) << piece;
    EXPECT_EQ(hash.finish(), sha256_hex({})) << "finish() did not begin a new stream";
  }
}

}  // namespace
}  // namespace adder
