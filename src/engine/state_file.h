// Saved conversations (--state-out, --state-in).
//
// Layout, little endian: "ADDERSTA", u32 version, u32 header bytes, header (JSON: model
// fingerprint, sizes, token count and hash), i32 recent tokens, f32 logits, the state of all layers
// (StatePool::snapshot), and the SHA-256 of everything before it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "engine/engine.h"
#include "engine/generator.h"

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

}  // namespace adder
