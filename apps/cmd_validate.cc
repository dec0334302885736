// adder validate: the same tokens on several devices, and how far their results lie apart.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli_common.h"
#include "commands.h"
#include "core/error.h"
#include "engine/model_source.h"
#include "measure/device_validation.h"
#include "status_line.h"

namespace adder {
namespace {

struct ValidateOptions {
  cli::ModelOptions model;
  std::string tokens, text;
  ValidationOptions validation;
  bool json = false;
};

// What is fed when nothing was asked for: long enough for several chunks of the Mamba-2 scan and a
// rest, and spread over the vocabulary.
std::vector<int32_t> usual_tokens(int64_t vocab) {
  std::vector<int32_t> tokens(150);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (int32_t& t : tokens) t = static_cast<int32_t>((int64_t{t} * 7919 + 11) % vocab);
  return tokens;
}

void print_table(const ValidateOptions& o, const std::vector<DeviceValidation>& results) {
  const ValidationBounds& b = o.validation.bounds;
  fmt::print("{} tokens, {} greedy ones behind them; held against {}\n\n",
             o.validation.tokens.size(), o.validation.greedy_tokens, results.front().device);
  fmt::print("{:16} {:>19} {:>9} {:>11} {:>19} {:>19}\n", "", "logits", "layers", "greedy",
             "in two pieces", "token by token");
  fmt::print("{:16} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9}\n", "device", "relative",
             "absolute", "relative", "tokens", "relative", "absolute", "relative", "absolute");
  for (const DeviceValidation& r : results) {
    const double layers =
        r.layers.empty() ? 0 : *std::max_element(r.layers.begin(), r.layers.end());
    const std::string greedy =
        r.first_other_token ? fmt::format("{} differs", *r.first_other_token) : "equal";
    fmt::print("{:16} {:>9.1e} {:>9.1e} {:>9.1e} {:>11} {:>9.1e} {:>9.1e} {:>9.1e} {:>9.1e}  {}\n",
               r.device, r.logits.relative, r.logits.absolute, layers, greedy, r.split.relative,
               r.split.absolute, r.cached.relative, r.cached.absolute, r.passed ? "ok" : "FAILED");
  }
  fmt::print("\nBounds: relative {:.1e} (of norms), absolute {:.1e} (largest difference).\n",
             b.relative, b.absolute);
  for (const DeviceValidation& r : results) fmt::print("{}: {}\n", r.device, r.description);
}

nlohmann::ordered_json to_json(const Difference& d) {
  return {{"relative", d.relative}, {"absolute", d.absolute}};
}

void print_json(const ValidateOptions& o, const std::vector<DeviceValidation>& results) {
  nlohmann::ordered_json j = {
      {"model", o.model.model.empty() ? "demo" : o.model.model},
      {"tokens", o.validation.tokens.size()},
      {"greedy_tokens", o.validation.greedy_tokens},
      {"bounds",
       {{"relative", o.validation.bounds.relative}, {"absolute", o.validation.bounds.absolute}}}};
  for (const DeviceValidation& r : results) {
    nlohmann::ordered_json d = {{"device", r.device},           {"description", r.description},
                                {"logits", to_json(r.logits)},  {"layers_relative", r.layers},
                                {"first_other_token", nullptr}, {"split", to_json(r.split)},
                                {"cached", to_json(r.cached)},  {"passed", r.passed}};
    if (r.first_other_token) d["first_other_token"] = *r.first_other_token;
    j["devices"].push_back(std::move(d));
  }
  fmt::print("{}\n", j.dump());
}

void validate(ValidateOptions& o) {
  const auto checkpoint = std::make_shared<const Checkpoint>(open_model(o.model.model));
  if (!o.tokens.empty()) {
    o.validation.tokens = cli::read_ids(o.tokens);
  } else if (!o.text.empty()) {
    const auto tokenizer = find_tokenizer(*checkpoint);
    ADDER_CHECK(tokenizer != nullptr, "{}: expected a tokenizer beside it for --text, got none",
                checkpoint->path());
    o.validation.tokens = tokenizer->encode(o.text);
  } else {
    o.validation.tokens = usual_tokens(derive_config(*checkpoint).vocab_size);
  }
  o.validation.threads = o.model.threads;
  o.validation.pin = !o.model.no_pin;
  o.validation.block = o.model.block;
  cli::StatusLine status;
  o.validation.progress = [&](const std::string& what) { status.show(what); };
  const auto results = validate_devices(checkpoint, o.validation);
  status.clear();
  if (o.json) {
    print_json(o, results);
  } else {
    print_table(o, results);
  }
  std::vector<std::string> failed;
  for (const DeviceValidation& r : results)
    if (!r.passed) failed.push_back(r.device);
  if (!failed.empty())
    fail(ErrorCode::kInternal, "validate: beyond the bounds: {}", fmt::join(failed, ", "));
}

}  // namespace

void add_validate(CLI::App& app) {
  auto o = std::make_shared<ValidateOptions>();
  o->validation.devices = {"ref", "cpu"};
  CLI::App* c = app.add_subcommand("validate", "Hold devices against each other on a model");
  c->footer(
      "Feeds the same tokens on each device and compares with the first one: the logits of every\n"
      "position, the residual stream behind each layer, and the greedy tokens that follow. On "
      "each\n"
      "device the prompt fed in two pieces, and token by token, is compared with it fed whole.\n"
      "Ends with status 1 when anything is beyond the bounds. The defaults suit float32 and "
      "16-bit\n"
      "weights; quantized ones round activations, where a last bit can become a step.");
  c->add_option("model", o->model.model, "Model; without it the demo model")->type_name("MODEL");
  c->add_option("--devices", o->validation.devices, "Devices, the one to hold against first")
      ->delimiter(',')
      ->capture_default_str();
  auto* tokens = c->add_option("--tokens", o->tokens,
                               "Ids separated by commas; @FILE or - for long lists. Without it and "
                               "--text: 150 ids from all over the vocabulary");
  c->add_option("--text", o->text, "A text instead")->excludes(tokens);
  c->add_option("--greedy", o->validation.greedy_tokens, "How many greedy tokens are compared")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  c->add_option("--relative", o->validation.bounds.relative, "Largest relative difference")
      ->check(cli::number_from(0, 1))
      ->capture_default_str();
  c->add_option("--absolute", o->validation.bounds.absolute, "Largest absolute difference")
      ->check(cli::number_from(0, 1e6))
      ->capture_default_str();
  cli::add_thread_options(*c, o->model);
  c->add_flag("--json", o->json, "Print one JSON object");
  c->callback([o] { validate(*o); });
}

}  // namespace adder
