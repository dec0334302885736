#include "engine/session_file.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/sealed_file.h"
#include "engine/state_file.h"
#include "io/mmap_file.h"

namespace adder {
namespace {

constexpr SealedKind kSessionFileKind = {"ADDERSES", 1, 16 << 20, "session file"};

template <typename T>
std::vector<T> take(std::span<const std::byte>& rest, size_t count) {
  std::vector<T> values(count);
  if (count != 0) std::memcpy(values.data(), rest.data(), count * sizeof(T));
  rest = rest.subspan(count * sizeof(T));
  return values;
}

// [[tokens, 1 when generated], ...]
std::vector<Stretch> parse_stretches(const SealedReader& reader, size_t tokens,
                                     const std::string& name) {
  const auto wrong = [&](const std::string& what) {
    bad_input(
        "{}: field 'stretches': expected pairs of a length and 0 or 1 that sum to {} tokens, "
        "got {}",
        name, tokens, what);
  };
  std::vector<Stretch> stretches;
  int64_t sum = 0;
  const auto flat = reader.header().get_array("stretches").value_or(std::vector<JsonValue>());
  if (flat.size() % 2 != 0) wrong(fmt::format("{} numbers", flat.size()));
  for (size_t i = 0; i < flat.size(); i += 2) {
    const int64_t length = flat[i].as_int(), generated = flat[i + 1].as_int();
    const auto left = static_cast<int64_t>(tokens) - sum;
    if (length < 1 || length > left || generated < 0 || generated > 1) {
      wrong(fmt::format("{}, {}", length, generated));
    }
    sum += length;
    stretches.push_back({length, generated == 1});
  }
  if (sum != static_cast<int64_t>(tokens)) wrong(fmt::format("{} tokens", sum));
  return stretches;
}

}  // namespace

void save_session(Engine& engine, const SavedSession& session, const std::string& file) {
  const ParkedState empty;
  const ParkedState& state = session.state ? *session.state : empty;
  std::vector<int64_t> stretches;
  for (const Stretch& s : session.stretches) {
    stretches.push_back(s.tokens);
    stretches.push_back(s.generated ? 1 : 0);
  }
  const nlohmann::json header = {
      {"model", engine.fingerprint()},    {"id", session.info.id},
      {"parent", session.info.parent},    {"created", session.info.created},
      {"turns", session.info.turns},      {"tokens", state.tokens.size()},
      {"stretches", stretches},           {"logits", state.logits.size()},
      {"state_bytes", state.state.size()}};
  SealedWriter out(kSessionFileKind, header.dump(), state.bytes());
  out.append(std::span(state.tokens));
  out.append(std::span(state.logits));
  out.append(std::span(state.state));
  out.write(file);
}

SavedSession parse_session(Engine& engine, std::span<const std::byte> bytes,
                           const std::string& name, bool header_only) {
  const SealedReader reader(kSessionFileKind, bytes, name);
  check_same_model(engine, reader, name);
  SavedSession s;
  s.info.id = reader.header().get_string("id").value_or("");
  s.info.parent = reader.header().get_string("parent").value_or("");
  s.info.created = static_cast<int64_t>(reader.size_field("created"));
  s.info.turns = static_cast<int64_t>(reader.size_field("turns"));
  const size_t tokens = reader.size_field("tokens"), logits = reader.size_field("logits"),
               state_bytes = reader.size_field("state_bytes");
  s.info.tokens = static_cast<int64_t>(tokens);
  s.stretches = parse_stretches(reader, tokens, name);
  if (header_only) return s;
  std::span<const std::byte> rest = reader.payload(4 * (tokens + logits) + state_bytes);
  if (tokens == 0 && state_bytes == 0 && logits == 0) return s;  // saved before its first request
  check_state_sizes(engine, state_bytes, logits, name);
  ADDER_CHECK(tokens != 0, "{}: field 'tokens': expected at least 1 beside a state, got 0", name);
  ParkedState state;
  state.tokens = take<int32_t>(rest, tokens);
  engine.check_tokens(state.tokens);
  state.token_hash = hash_tokens(state.tokens);
  state.logits = take<float>(rest, logits);
  state.state.assign(rest.begin(), rest.end());
  s.state = std::make_shared<const ParkedState>(std::move(state));
  return s;
}

SavedSession load_session(Engine& engine, const std::string& file, bool header_only) {
  return parse_session(engine, MappedFile::open(file)->bytes(), file, header_only);
}

}  // namespace adder
