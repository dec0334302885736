#include "text/sentencepiece_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "core/error.h"
#include "text/unicode.h"

namespace adder {
namespace {

// Protocol buffers on the wire: a key (field number * 8 + wire type), then the value.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

struct Field {
  uint32_t number;
  uint32_t wire;
  uint64_t value;          // of a varint or a fixed field
  std::string_view bytes;  // of a length-delimited field
};

class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& name) : left_(bytes), name_(name) {}

  bool done() const { return left_.empty(); }

  Field next() {
    const uint64_t key = varint();
    Field field{static_cast<uint32_t>(key >> 3), static_cast<uint32_t>(key & 7), 0, {}};
    ADDER_CHECK(key >> 3 != 0 && key >> 3 < (1u << 29), "{}: not a SentencePiece model", name_);
    switch (field.wire) {
      case kVarint:
        field.value = varint();
        break;
      case kFixed64:
        take(8);
        break;
      case kLength:
        field.bytes = take(varint());
        break;
      case kFixed32: {
        uint32_t word;
        std::memcpy(&word, take(4).data(), 4);
        field.value = word;
        break;
      }
      default:
        bad_input("{}: not a SentencePiece model: wire type {}", name_, field.wire);
    }
    return field;
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    bad_input("{}: not a SentencePiece model: a number of more than 64 bits", name_);
  }

  std::string_view take(uint64_t count) {
    ADDER_CHECK(count <= left_.size(), "{}: SentencePiece model cut short: {} bytes are missing",
                name_, count - left_.size());
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
  const std::string& name_;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, size_t id, const std::string& name) {
  SentencePieceModel::Piece piece;
  for (WireReader reader(bytes, name); !reader.done();) {
    const Field field = reader.next();
    if (field.number == 1 && field.wire == kLength) piece.text = field.bytes;
    if (field.number == 2 && field.wire == kFixed32) {
      const auto word = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &word, 4);
    }
    if (field.number == 3 && field.wire == kVarint) {
      ADDER_CHECK(field.value >= 1 && field.value <= 6,
                  "{}: piece {}: expected type 1 .. 6, got {}", name, id, field.value);
      piece.type = static_cast<PieceType>(field.value);
    }
  }
  ADDER_CHECK(!piece.text.empty(), "{}: piece {} is empty", name, id);
  ADDER_CHECK(is_valid_utf8(piece.text) && piece.text.find('\0') == std::string_view::npos,
              "{}: piece {}: expected UTF-8 without zero bytes", name, id);
  // Sums over a text must stay finite: 1e9 * 2^31 < 3.4e38.
  ADDER_CHECK(std::abs(piece.score) <= 1e9f,
              "{}: piece {}: expected a score of at most 1e9, got {}", name, id, piece.score);
  return piece;
}

void read_trainer_spec(std::string_view bytes, SentencePieceModel& model, const std::string& name) {
  for (WireReader reader(bytes, name); !reader.done();) {
    const Field field = reader.next();
    if (field.wire == kVarint) {
      if (field.number == 3) {
        if (field.value > 2) {
          fail(ErrorCode::kUnsupported, "{}: expected model type 1 (unigram) or 2 (BPE), got {}",
               name, field.value);
        }
        model.is_bpe = field.value == 2;
      }
      if (field.number == 24) model.treat_whitespace_as_suffix = field.value != 0;
      if (field.number == 35) model.byte_fallback = field.value != 0;
    } else if (field.wire == kLength) {
      if (field.number == 44) model.unk_surface = field.bytes;
      if (field.number == 45) model.unk_piece = field.bytes;
      if (field.number == 46) model.bos_piece = field.bytes;
      if (field.number == 47) model.eos_piece = field.bytes;
      if (field.number == 48) model.pad_piece = field.bytes;
    }
  }
}

void read_normalizer_spec(std::string_view bytes, SentencePieceModel& model,
                          const std::string& name) {
  for (WireReader reader(bytes, name); !reader.done();) {
    const Field field = reader.next();
    if (field.number == 2 && field.wire == kLength) model.charsmap = field.bytes;
    if (field.wire != kVarint) continue;
    if (field.number == 3) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4) model.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model.escape_whitespaces = field.value != 0;
  }
}

// The compiled rules: u32 size of a double array, the array, and zero-terminated replacements that
// its leaves point at. A search moves from unit to unit by xor with an offset and the next byte,
// without a bound, and gathers at most 32 leaves in a fixed array; so walk all that can be reached.
void check_charsmap(std::string_view charsmap, const std::string& name) {
  constexpr size_t kLargest = size_t{1} << 20;  // the largest published one has 316 KB
  constexpr int kMostLeaves = 32;
  if (charsmap.empty()) return;
  ADDER_CHECK(charsmap.size() > 8 && charsmap.size() <= kLargest,
              "{}: normaliser rules: expected 9 .. {} bytes, got {}", name, kLargest,
              charsmap.size());
  uint32_t array_bytes;
  std::memcpy(&array_bytes, charsmap.data(), 4);
  ADDER_CHECK(array_bytes % 4 == 0 && array_bytes >= 1024 && array_bytes < charsmap.size() - 4,
              "{}: normaliser rules: an array of {} bytes in a field of {}", name, array_bytes,
              charsmap.size());
  std::vector<uint32_t> units(array_bytes / 4);
  std::memcpy(units.data(), charsmap.data() + 4, array_bytes);
  const std::string_view replacements = charsmap.substr(4 + array_bytes);
  ADDER_CHECK(replacements.back() == '\0', "{}: normaliser rules: the last one has no end", name);

  const auto offset_of = [](uint32_t unit) { return (unit >> 10) << ((unit & 512) >> 6); };
  std::vector<int8_t> most(units.size(), -1);  // most leaves on a way to the unit
  struct Step {
    uint32_t base;
    int8_t leaves;
  };
  std::vector<Step> open = {{offset_of(units[0]), 0}};
  while (!open.empty()) {
    const auto [base, leaves] = open.back();
    open.pop_back();
    ADDER_CHECK((base | 255) < units.size(), "{}: normaliser rules: damaged array", name);
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const uint32_t at = base ^ byte, unit = units[at];
      if ((unit & 0x800000ffu) != byte) continue;
      const uint32_t next = at ^ offset_of(unit);
      auto count = leaves;
      if ((unit >> 8 & 1) != 0) {
        ++count;
        ADDER_CHECK(next < units.size() && (units[next] & 0x7fffffffu) < replacements.size() &&
                        count <= kMostLeaves,
                    "{}: normaliser rules: damaged array", name);
      }
      if (most[at] >= count) continue;
      most[at] = count;
      open.push_back({next, count});
    }
  }
}

// The search for user-defined pieces gathers the ones that begin at a place in an array of 64.
void check_nesting(const SentencePieceModel& model, const std::string& name) {
  constexpr size_t kDeepest = 64;
  std::vector<std::string_view> texts, open;
  for (const auto& piece : model.pieces) {
    if (piece.type == PieceType::kUserDefined) texts.push_back(piece.text);
  }
  std::sort(texts.begin(), texts.end());
  for (const std::string_view text : texts) {
    while (!open.empty() && !text.starts_with(open.back())) open.pop_back();
    open.push_back(text);
    ADDER_CHECK(open.size() <= kDeepest, "{}: more than {} user-defined pieces begin alike", name,
                kDeepest);
  }
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void append_number(std::string& out, uint32_t field, uint64_t value) {
  append_varint(out, field << 3 | kVarint);
  append_varint(out, value);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_varint(out, field << 3 | kLength);
  append_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& name) {
  // The largest published vocabularies have 256,000 pieces; a piece takes about 100 bytes.
  constexpr size_t kMostPieces = 500'000;
  SentencePieceModel model;
  for (WireReader reader(bytes, name); !reader.done();) {
    const Field field = reader.next();
    if (field.wire != kLength) continue;
    if (field.number == 1) {
      ADDER_CHECK(model.pieces.size() < kMostPieces, "{}: more than {} pieces", name, kMostPieces);
      model.pieces.push_back(read_piece(field.bytes, model.pieces.size(), name));
    } else if (field.number == 2) {
      read_trainer_spec(field.bytes, model, name);
    } else if (field.number == 3) {
      read_normalizer_spec(field.bytes, model, name);
    }
  }
  const auto unknown = std::count_if(model.pieces.begin(), model.pieces.end(),
                                     [](const auto& p) { return p.type == PieceType::kUnknown; });
  ADDER_CHECK(unknown == 1, "{}: expected one unknown piece, got {} among {} pieces", name, unknown,
              model.pieces.size());
  std::unordered_set<std::string_view> seen;
  seen.reserve(model.pieces.size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    ADDER_CHECK(seen.insert(model.pieces[id].text).second, "{}: piece {}: '{}' occurs twice", name,
                id, model.pieces[id].text);
  }
  check_nesting(model, name);
  check_charsmap(model.charsmap, name);
  return model;
}

std::string write_sentencepiece_model(const SentencePieceModel& model, bool add_dummy_prefix) {
  std::string out, part;
  for (const auto& piece : model.pieces) {
    part.clear();
    append_bytes(part, 1, piece.text);
    append_varint(part, 2 << 3 | kFixed32);
    part.append(reinterpret_cast<const char*>(&piece.score), 4);
    append_number(part, 3, static_cast<uint64_t>(piece.type));
    append_bytes(out, 1, part);
  }
  part.clear();
  append_number(part, 3, model.is_bpe ? 2 : 1);
  append_number(part, 24, model.treat_whitespace_as_suffix ? 1 : 0);
  append_number(part, 35, model.byte_fallback ? 1 : 0);
  append_bytes(part, 45, model.unk_piece);
  append_bytes(part, 46, model.bos_piece);
  append_bytes(part, 47, model.eos_piece);
  append_bytes(part, 48, model.pad_piece);
  append_bytes(out, 2, part);
  part.clear();
  if (!model.charsmap.empty()) append_bytes(part, 2, model.charsmap);
  append_number(part, 3, add_dummy_prefix ? 1 : 0);
  append_number(part, 4, model.remove_extra_whitespaces ? 1 : 0);
  append_number(part, 5, model.escape_whitespaces ? 1 : 0);
  append_bytes(out, 3, part);
  return out;
}

}  // namespace adder
