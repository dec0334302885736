// adder tokenize: text to ids and pieces, and back.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/model_source.h"

namespace adder {
namespace {

struct TokenizeOptions {
  std::optional<std::string> first, second;  // [MODEL] TEXT
  bool decode = false, special = false, json = false;
};

void tokenize(const TokenizeOptions& o) {
  std::string model;
  std::optional<std::string> argument;
  if (o.second) {
    model = *o.first;
    argument = o.second;
  } else if (o.first) {
    (names_a_model(*o.first) ? model : argument.emplace()) = *o.first;
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
  for (const int32_t id : ids)
    fmt::print("{}\t{}\n", id, cli::escape_unprintable(tokenizer->token_bytes(id)));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* c = app.add_subcommand("tokenize", "Ids and pieces of a text, or the text of ids");
  c->footer(
      "MODEL may also be a tokenizer file. One argument is a MODEL if it names one (the text then "
      "comes\n"
      "from standard input), else the TEXT, split by the demo model's tokenizer (bytes).");
  c->add_option("MODEL", o->first, "Model or tokenizer file")->type_name("");
  c->add_option("TEXT", o->second, "Text; without it standard input")->type_name("");
  c->add_flag("--decode", o->decode, "TEXT is ids separated by commas; print what they stand for");
  c->add_flag("--special", o->special, "Spellings of control tokens in TEXT become control tokens");
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { tokenize(*o); });
}

}  // namespace adder
