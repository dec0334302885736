// adder tokenize: text to ids and pieces, and back.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/model_source.h"

namespace adder {
namespace {

struct TokenizeOptions {
  std::vector<std::string> arguments;  // [MODEL] TEXT
  bool decode = false, special = false, json = false;
};

// Bytes that are not printable are shown as \xNN, so that every piece fits on its line.
std::string printable(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

void tokenize(const TokenizeOptions& o) {
  std::string model;
  std::optional<std::string> argument;
  if (o.arguments.size() == 2) {
    model = o.arguments[0];
    argument = o.arguments[1];
  } else if (o.arguments.size() == 1) {
    (names_a_model(o.arguments[0]) ? model : argument.emplace()) = o.arguments[0];
  }
  const auto tokenizer = load_tokenizer_of(model);
  const std::string text = argument ? *argument : cli::read_stdin();
  if (o.decode) {
    const std::string decoded = tokenizer->decode(cli::parse_ids(text));
    std::fwrite(decoded.data(), 1, decoded.size(), stdout);
    if (cli::stdout_is_terminal()) fmt::print("\n");
    return;
  }
  EncodeOptions encode;
  encode.parse_special = o.special;
  const std::vector<int32_t> ids = tokenizer->encode(text, encode);
  if (o.json) {
    nlohmann::ordered_json j = {{"ids", ids}, {"pieces", nlohmann::json::array()}};
    for (const int32_t id : ids) j["pieces"].push_back(tokenizer->token_bytes(id));
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  for (const int32_t id : ids) fmt::print("{}\t{}\n", id, printable(tokenizer->token_bytes(id)));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* c = app.add_subcommand("tokenize", "Ids and pieces of a text, or the text of ids");
  c->footer(
      "MODEL may also be a tokenizer file. One argument is a MODEL if it names one (the text then "
      "comes\n"
      "from standard input), else the TEXT, split by the demo model's tokenizer (bytes).");
  c->add_option("arguments", o->arguments, "[MODEL] TEXT")->expected(0, 2)->type_name("");
  c->add_flag("--decode", o->decode, "TEXT is ids separated by commas; print what they stand for");
  c->add_flag("--special", o->special, "Spellings of control tokens in TEXT become control tokens");
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { tokenize(*o); });
}

}  // namespace adder
