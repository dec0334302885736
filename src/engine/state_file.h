// Saved conversations (--state-out, --state-in).
//
// A sealed file (engine/sealed_file.h) of the kind "ADDERSTA": a header with the model's
// fingerprint, sizes, token count and hash; i32 recent tokens, f32 logits, the state of all layers
// (StatePool::snapshot).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generator.h"
#include "engine/sealed_file.h"
#include "engine/state_cache.h"

namespace adder {

// Writes to a temporary name in the same directory, then renames: an existing file is replaced
// whole or not at all. Throws Error(kIo).
void save_conversation(Engine& engine, const Conversation& conversation, const std::string& file);

// Takes a free slot of the engine. Throws Error(kBadInput) when the file is not a state file, is
// truncated or damaged, or belongs to another model.
Conversation load_conversation(Engine& engine, const std::string& file);

// The same for bytes in memory; `name` is used in messages.
Conversation parse_conversation(Engine& engine, std::span<const std::byte> bytes,
                                const std::string& name);

// The same files for conversations that are parked on the host; no slot is taken. Of the tokens,
// the newest 1024 at most are in the file.
void save_parked(Engine& engine, const ParkedState& parked, const std::string& file);
std::vector<std::byte> parked_image(Engine& engine, const ParkedState& parked);  // the file's bytes
ParkedState load_parked(Engine& engine, const std::string& file);
ParkedState parse_parked(Engine& engine, std::span<const std::byte> bytes, const std::string& name);

// What every kind of file with a state checks: that it was made by the engine's model, and that its
// state and logits (0: it has none) are as large as the engine's. Throw Error(kBadInput).
void check_same_model(Engine& engine, const SealedReader& reader, const std::string& name);
void check_state_sizes(Engine& engine, size_t state_bytes, size_t logits, const std::string& name);

}  // namespace adder
