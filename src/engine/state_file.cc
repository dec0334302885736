#include "engine/state_file.h"

#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/sealed_file.h"
#include "io/mmap_file.h"
#include "io/printable.h"

namespace adder {
namespace {

constexpr SealedKind kKind = {"ADDERSTA", 1, 4096, "state file"};

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
  SealedWriter out(kKind, header.dump(), 4 * (c.recent.size() + c.logits.size()) + state_bytes);
  out.append(std::span(c.recent));
  out.append(std::span(c.logits));
  engine.states().snapshot(c.state, out.extend(state_bytes));
  out.write(file);
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

Conversation parse_conversation(Engine& engine, std::span<const std::byte> bytes,
                                const std::string& name) {
  const SealedReader reader(kKind, bytes, name);
  // The model first: a foreign file is the likely mistake, and its sizes mean nothing here.
  check_same_model(engine, reader, name);
  const size_t recent = reader.size_field("recent"), logits = reader.size_field("logits"),
               state_bytes = reader.size_field("state_bytes");
  std::span<const std::byte> rest = reader.payload(4 * (recent + logits) + state_bytes);
  check_state_sizes(engine, state_bytes, logits, name);

  Conversation c;
  c.length = static_cast<int64_t>(reader.size_field("tokens"));
  const std::string hash = reader.header().get_string("token_hash").value_or("");
  const auto parsed = std::from_chars(hash.data(), hash.data() + hash.size(), c.token_hash, 16);
  if (hash.size() != 16 || parsed.ptr != hash.data() + hash.size()) {
    bad_input("{}: field 'token_hash': expected 16 hexadecimal digits, got {}", name,
              printable(hash, 32));
  }
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
