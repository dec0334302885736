// Saved sessions: a sealed file (engine/sealed_file.h) of the kind "ADDERSES": a header with the
// model's fingerprint, the session's names and counts and how its tokens came in; then i32 tokens,
// f32 logits, and the state of all layers (StatePool::snapshot).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/session_store.h"

namespace adder {

struct SavedSession {
  SessionInfo info;  // id, parent, created, tokens, turns
  std::vector<Stretch> stretches;
  std::shared_ptr<const ParkedState> state;
};

void save_session(Engine& engine, const SavedSession& session, const std::string& file);

// Throws Error(kBadInput) when the file is none, is truncated or damaged, or belongs to another
// model. header_only: without state, and without looking at the rest of the file.
SavedSession load_session(Engine& engine, const std::string& file, bool header_only);

// The same for bytes in memory; `name` is used in messages.
SavedSession parse_session(Engine& engine, std::span<const std::byte> bytes,
                           const std::string& name, bool header_only);

}  // namespace adder
