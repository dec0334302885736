#include "engine/state_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/sealed_file.h"
#include "io/mmap_file.h"
#include "io/printable.h"

namespace adder {
namespace {

constexpr SealedKind kStateFileKind = {"ADDERSTA", 1, 4096, "state file"};

// Everything but the state, which the caller appends.
SealedWriter begin_file(Engine& engine, int64_t length, uint64_t token_hash,
                        std::span<const int32_t> recent, std::span<const float> logits) {
  const size_t state_bytes = engine.states().snapshot_bytes();
  const nlohmann::json header = {{"model", engine.fingerprint()},
                                 {"family", engine.config().family},
                                 {"tokens", length},
                                 {"token_hash", fmt::format("{:016x}", token_hash)},
                                 {"recent", recent.size()},
                                 {"logits", logits.size()},
                                 {"state_bytes", state_bytes}};
  SealedWriter out(kStateFileKind, header.dump(),
                   4 * (recent.size() + logits.size()) + state_bytes);
  out.append(recent);
  out.append(logits);
  return out;
}

SealedWriter parked_file(Engine& engine, const ParkedState& parked) {
  const auto recent = std::span(parked.tokens).last(std::min(parked.tokens.size(), kRecentTokens));
  SealedWriter out = begin_file(engine, parked.length(), parked.token_hash, recent, parked.logits);
  out.append(std::span(parked.state));
  return out;
}

}  // namespace

void save_conversation(Engine& engine, const Conversation& c, const std::string& file) {
  ADDER_CHECK(static_cast<bool>(c.state),
              "{}: nothing has been processed, so there is no state to save", file);
  SealedWriter out = begin_file(engine, c.length, c.token_hash, c.recent, c.logits);
  engine.states().snapshot(c.state, out.extend(engine.states().snapshot_bytes()));
  out.write(file);
}

void save_parked(Engine& engine, const ParkedState& parked, const std::string& file) {
  parked_file(engine, parked).write(file);
}

std::vector<std::byte> parked_image(Engine& engine, const ParkedState& parked) {
  return parked_file(engine, parked).seal();
}

void check_same_model(Engine& engine, const SealedReader& reader, const std::string& name) {
  const std::string model = reader.header().get_string("model").value_or("");
  if (model != engine.fingerprint()) {
    bad_input("{}: field 'model': expected {}, got {}: the state was saved with another model",
              name, printable(engine.fingerprint(), 12),
              model.empty() ? "nothing" : printable(model, 12));
  }
}

void check_state_sizes(Engine& engine, size_t state_bytes, size_t logits, const std::string& name) {
  if (state_bytes != engine.states().snapshot_bytes() ||
      (logits != 0 && logits != static_cast<size_t>(engine.config().vocab_rows))) {
    bad_input("{}: expected a state of {} bytes and {} logits, got {} and {}", name,
              engine.states().snapshot_bytes(), engine.config().vocab_rows, state_bytes, logits);
  }
}

ParkedState parse_parked(Engine& engine, std::span<const std::byte> bytes,
                         const std::string& name) {
  const SealedReader reader(kStateFileKind, bytes, name);
  // The model first: a foreign file is the likely mistake, and its sizes mean nothing here.
  check_same_model(engine, reader, name);
  const size_t recent = reader.size_field("recent"), logits = reader.size_field("logits"),
               state_bytes = reader.size_field("state_bytes"), length = reader.size_field("tokens");
  std::span<const std::byte> rest = reader.payload(4 * (recent + logits) + state_bytes);
  check_state_sizes(engine, state_bytes, logits, name);
  ADDER_CHECK(recent <= length, "{}: field 'recent': expected at most {} tokens, got {}", name,
              length, recent);

  ParkedState parked;
  const std::string hash = reader.header().get_string("token_hash").value_or("");
  const auto parsed =
      std::from_chars(hash.data(), hash.data() + hash.size(), parked.token_hash, 16);
  if (hash.size() != 16 || parsed.ptr != hash.data() + hash.size()) {
    bad_input("{}: field 'token_hash': expected 16 hexadecimal digits, got {}", name,
              printable(hash, 32));
  }
  parked.forgotten = static_cast<int64_t>(length - recent);
  parked.tokens.resize(recent);
  if (recent != 0) std::memcpy(parked.tokens.data(), rest.data(), recent * sizeof(int32_t));
  rest = rest.subspan(recent * sizeof(int32_t));
  engine.check_tokens(parked.tokens);
  parked.logits.resize(logits);
  if (logits != 0) std::memcpy(parked.logits.data(), rest.data(), logits * sizeof(float));
  rest = rest.subspan(logits * sizeof(float));
  parked.state.assign(rest.begin(), rest.end());
  return parked;
}

Conversation parse_conversation(Engine& engine, std::span<const std::byte> bytes,
                                const std::string& name) {
  return unpark(engine, parse_parked(engine, bytes, name));
}

ParkedState load_parked(Engine& engine, const std::string& file) {
  return parse_parked(engine, MappedFile::open(file)->bytes(), file);
}

Conversation load_conversation(Engine& engine, const std::string& file) {
  return parse_conversation(engine, MappedFile::open(file)->bytes(), file);
}

}  // namespace adder
