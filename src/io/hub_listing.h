// What a Hugging Face-style endpoint says a repository holds, and which of it Adder wants.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adder {

struct ListedFile {
  std::optional<int64_t> size;
  std::string sha256;  // 64 lower-case hex digits of a large (LFS) file; else empty
  // Changes when the content does: the SHA-256 or git's blob id; empty when the server gives none.
  std::string version;
};

struct RepoListing {
  std::string commit;  // 40 hex digits, or empty
  std::map<std::string, ListedFile> files;
};

// Reads the answer of /api/models/{repo}?blobs=true:
//   {"sha": commit, "siblings": [{"rfilename", "size", "blobId", "lfs": {"sha256", "size"}}]}
// `where` is used in messages. Throws Error(kBadInput) on malformed JSON, on a name that is not a
// relative path inside the repository, and on sizes or hashes that cannot be.
RepoListing parse_listing(std::string_view text, const std::string& where);

struct Selection {
  std::vector<std::string> files;  // in the order of download: small ones first
  std::string index;               // of sharded weights: names the shards; empty when not sharded
  bool has_tokenizer = false;
};

// The configuration, the tokenizer and one form of the weights: model.safetensors, its shards,
// consolidated.safetensors, pytorch_model.bin, its shards, or the only GGUF file, in this order.
// Files that match a pattern of `include` (shell wildcards) come on top; where a pattern names
// weights (.safetensors, .bin, .pt, .gguf) they are the only weights.
// Throws Error(kBadInput) when there are no weights or no configuration, or nothing matches.
Selection select_files(const RepoListing& listing, const std::vector<std::string>& include,
                       const std::string& where);

// True for config.json text in the state-spaces dialect with the GPT-NeoX vocabulary: such
// repositories come without a tokenizer and mean that of EleutherAI/gpt-neox-20b.
bool wants_neox_tokenizer(std::string_view config);

// True for a relative path that stays inside: no empty part, '.', '..', backslash or control
// character.
bool is_inside_path(std::string_view name);

// Names the download itself uses beside the files: they cannot be fetched.
bool is_reserved(std::string_view name);

bool is_hex(std::string_view text, size_t digits);
std::string lower_case(std::string_view text);  // ASCII

}  // namespace adder
