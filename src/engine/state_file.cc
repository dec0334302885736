#include "engine/state_file.h"

#include <array>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "engine/atomic_file.h"
#include "io/json_lenient.h"
#include "io/mmap_file.h"
#include "io/printable.h"
#include "io/sha256.h"

namespace adder {
namespace {

constexpr std::array<char, 8> kMagic = {'A', 'D', 'D', 'E', 'R', 'S', 'T', 'A'};
constexpr uint32_t kVersion = 1;
constexpr size_t kPreamble = kMagic.size() + 2 * sizeof(uint32_t);
constexpr size_t kDigest = 32;
constexpr size_t kMaxHeader = 4096;

std::array<std::byte, kDigest> sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish_bytes();
}

void append(std::vector<std::byte>& out, const void* data, size_t bytes) {
  const auto* p = static_cast<const std::byte*>(data);
  out.insert(out.end(), p, p + bytes);
}

uint32_t read_u32(std::span<const std::byte> bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

}  // namespace

void save_conversation(Engine& engine, const Conversation& c, const std::string& file) {
  ADDER_CHECK(static_cast<bool>(c.state),
              "{}: nothing has been processed, so there is no state to save", file);
  const size_t state_bytes = engine.states().snapshot_bytes();
  const nlohmann::json header = {{"model", engine.fingerprint()},
                                 {"family", engine.config().family},
                                 {"tokens", c.length},
                                 {"token_hash", fmt::format("{:016x}", c.token_hash)},
                                 {"recent", c.recent.size()},
                                 {"logits", c.logits.size()},
                                 {"state_bytes", state_bytes}};
  const std::string text = header.dump();
  std::vector<std::byte> image;
  image.reserve(kPreamble + text.size() + 4 * (c.recent.size() + c.logits.size()) + state_bytes +
                kDigest);
  append(image, kMagic.data(), kMagic.size());
  const auto header_bytes = static_cast<uint32_t>(text.size());
  append(image, &kVersion, sizeof kVersion);
  append(image, &header_bytes, sizeof header_bytes);
  append(image, text.data(), text.size());
  append(image, c.recent.data(), c.recent.size() * sizeof(int32_t));
  append(image, c.logits.data(), c.logits.size() * sizeof(float));
  image.resize(image.size() + state_bytes);
  engine.states().snapshot(c.state, std::span(image).last(state_bytes));
  const auto digest = sha256(image);
  append(image, digest.data(), digest.size());

  AtomicFile out(file);
  out.write(image);
  out.commit();
}

Conversation parse_conversation(Engine& engine, std::span<const std::byte> bytes,
                                const std::string& name) {
  if (bytes.size() < kPreamble + kDigest ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    bad_input("{}: not a state file: expected it to begin with '{}'", name,
              std::string_view(kMagic.data(), kMagic.size()));
  }
  const uint32_t version = read_u32(bytes, kMagic.size());
  if (version != kVersion)
    bad_input("{}: field 'version': expected {}, got {}", name, kVersion, version);
  const size_t header_bytes = read_u32(bytes, kMagic.size() + sizeof(uint32_t));
  if (header_bytes > kMaxHeader || header_bytes > bytes.size() - kPreamble - kDigest) {
    bad_input("{}: truncated or damaged: the header says {} bytes", name, header_bytes);
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + kPreamble;
  const JsonValue header = JsonValue::parse(std::string_view(text, header_bytes), name);
  const auto number = [&](std::string_view key) {
    const int64_t value = header.get_int(key).value_or(-1);
    if (value < 0 || value > (int64_t{1} << 50))
      bad_input("{}: field '{}': expected a size, got {}", name, key, value);
    return static_cast<size_t>(value);
  };
  // The model first: a foreign file is the likely mistake, and its sizes mean nothing here.
  const std::string model = header.get_string("model").value_or("");
  if (model != engine.fingerprint()) {
    bad_input("{}: field 'model': expected {}, got {}: the state was saved with another model",
              name, printable(engine.fingerprint(), 12),
              model.empty() ? "nothing" : printable(model, 12));
  }
  const size_t recent = number("recent"), logits = number("logits"),
               state_bytes = number("state_bytes");
  const size_t expected = kPreamble + header_bytes + 4 * (recent + logits) + state_bytes + kDigest;
  if (bytes.size() != expected) {
    bad_input("{}: truncated or damaged: expected {} bytes, got {}", name, expected, bytes.size());
  }
  if (state_bytes != engine.states().snapshot_bytes() ||
      (logits != 0 && logits != static_cast<size_t>(engine.config().vocab_rows))) {
    bad_input("{}: expected a state of {} bytes and {} logits, got {} and {}", name,
              engine.states().snapshot_bytes(), engine.config().vocab_rows, state_bytes, logits);
  }
  const auto digest = sha256(bytes.first(bytes.size() - kDigest));
  if (std::memcmp(digest.data(), bytes.last(kDigest).data(), kDigest) != 0) {
    bad_input("{}: damaged: its SHA-256 does not match its contents", name);
  }

  Conversation c;
  c.length = static_cast<int64_t>(number("tokens"));
  const std::string hash = header.get_string("token_hash").value_or("");
  const auto parsed = std::from_chars(hash.data(), hash.data() + hash.size(), c.token_hash, 16);
  if (hash.size() != 16 || parsed.ptr != hash.data() + hash.size()) {
    bad_input("{}: field 'token_hash': expected 16 hexadecimal digits, got {}", name,
              printable(hash, 32));
  }
  std::span<const std::byte> rest = bytes.subspan(kPreamble + header_bytes);
  c.recent.resize(recent);
  if (recent != 0) std::memcpy(c.recent.data(), rest.data(), recent * sizeof(int32_t));
  rest = rest.subspan(recent * sizeof(int32_t));
  engine.check_tokens(c.recent);
  c.logits.resize(logits);
  if (logits != 0) std::memcpy(c.logits.data(), rest.data(), logits * sizeof(float));
  rest = rest.subspan(logits * sizeof(float));
  c.state = engine.states().acquire();
  engine.states().restore(c.state, rest.first(state_bytes));
  return c;
}

Conversation load_conversation(Engine& engine, const std::string& file) {
  return parse_conversation(engine, MappedFile::open(file)->bytes(), file);
}

}  // namespace adder
