#include "server/openai_options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "server/api_error.h"

namespace adder {
namespace {

constexpr size_t kMaxStops = 4;
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxBiases = 4096;
constexpr int64_t kMaxChoices = 128;  // OpenAI's
constexpr int64_t kMaxPriority = 1000;

float number_or(const Json& body, const char* name, double low, double high, double otherwise) {
  const Json* value = find_field(body, name);
  return static_cast<float>(value == nullptr ? otherwise : read_number(*value, name, low, high));
}

int64_t integer_or(const Json& body, const char* name, int64_t low, int64_t high,
                   int64_t otherwise) {
  const Json* value = find_field(body, name);
  return value == nullptr ? otherwise : read_integer(*value, name, low, high);
}

bool bool_or(const Json& body, const char* name, bool otherwise) {
  const Json* value = find_field(body, name);
  return value == nullptr ? otherwise : read_bool(*value, name);
}

SamplingOptions read_sampling(const Json& body) {
  SamplingOptions sampling;
  sampling.temperature = number_or(body, "temperature", 0, 2, 1);
  sampling.top_p = number_or(body, "top_p", 0, 1, 1);
  sampling.min_p = number_or(body, "min_p", 0, 1, 0);
  sampling.top_k = static_cast<int32_t>(integer_or(body, "top_k", 0, 1 << 30, 0));
  sampling.repeat_penalty = number_or(body, "repeat_penalty", 0.01, 100, 1);
  return sampling;
}

std::vector<std::string> read_stops(const Json& body) {
  const Json* stop = find_field(body, "stop");
  std::vector<std::string> stops;
  if (stop == nullptr) return stops;
  const auto add = [&stops](const Json& value, const std::string& param) {
    const std::string& text = read_string(value, param);
    if (text.size() > kMaxStopBytes) {
      bad_field(param, "expected at most {} bytes, got {}", kMaxStopBytes, text.size());
    }
    if (!text.empty()) stops.push_back(text);
  };
  if (!stop->is_array()) {
    add(*stop, "stop");
    return stops;
  }
  if (stop->size() > kMaxStops) {
    bad_field("stop", "expected at most {} strings, got {}", kMaxStops, stop->size());
  }
  for (size_t i = 0; i < stop->size(); ++i) add((*stop)[i], fmt::format("stop[{}]", i));
  return stops;
}

// {"50256": -100}: ids as strings, biases from -100, which forbids, to 100.
std::vector<std::pair<int32_t, float>> read_biases(const Json& body, const ApiLimits& limits) {
  std::vector<std::pair<int32_t, float>> biases;
  const Json* map = find_field(body, "logit_bias");
  if (map == nullptr) return biases;
  if (read_object(*map, "logit_bias").size() > kMaxBiases) {
    bad_field("logit_bias", "expected at most {} entries, got {}", kMaxBiases, map->size());
  }
  for (const auto& [key, value] : map->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 ||
        id >= limits.vocab_limit) {
      bad_field("logit_bias", "expected ids from 0 to {} as keys, got {}", limits.vocab_limit - 1,
                describe(Json(key)));
    }
    const double bias = read_number(value, fmt::format("logit_bias['{}']", id), -100, 100);
    biases.emplace_back(
        id, bias == -100 ? -std::numeric_limits<float>::infinity() : static_cast<float>(bias));
  }
  std::sort(biases.begin(), biases.end());
  return biases;
}

// {"type": "json_schema", "json_schema": {"schema": {...}}}
std::string read_schema(const Json& format, std::string_view text) {
  const Json* outer = find_field(format, "json_schema");
  if (outer == nullptr) bad_field("response_format.json_schema", "expected an object, got none");
  const Json* schema = find_field(read_object(*outer, "response_format.json_schema"), "schema");
  if (schema == nullptr) {
    bad_field("response_format.json_schema.schema", "expected a JSON schema, got none");
  }
  if (!schema->is_object() && !schema->is_boolean()) {
    bad_field("response_format.json_schema.schema", "expected a JSON schema, got {}",
              describe(*schema));
  }
  return dump(parse_ordered_field(text, "response_format")["json_schema"]["schema"]);
}

void read_form(const Json& body, std::string_view text, GenerationOptions& options) {
  if (const Json* grammar = find_field(body, "grammar")) {
    options.form = AnswerForm::kGrammar;
    options.form_text = read_string(*grammar, "grammar");
    if (options.form_text.empty()) options.form = AnswerForm::kText;
  }
  const Json* format = find_field(body, "response_format");
  if (format == nullptr) return;
  const Json* type = find_field(read_object(*format, "response_format"), "type");
  const std::string name = type == nullptr ? "" : read_string(*type, "response_format.type");
  if (name == "text") return;
  if (name != "json_object" && name != "json_schema") {
    bad_field("response_format.type", "expected text, json_object or json_schema, got {}",
              type == nullptr ? "none" : describe(*type));
  }
  if (options.form != AnswerForm::kText) {
    bad_field("response_format", "expected this or grammar, got both");
  }
  options.form = name == "json_object" ? AnswerForm::kJsonObject : AnswerForm::kJsonSchema;
  if (options.form == AnswerForm::kJsonSchema) options.form_text = read_schema(*format, text);
}

void read_streaming(const Json& body, GenerationOptions& options) {
  options.stream = bool_or(body, "stream", false);
  const Json* stream_options = find_field(body, "stream_options");
  if (stream_options == nullptr) return;
  read_object(*stream_options, "stream_options");
  if (!options.stream) bad_field("stream_options", "expected stream to be true beside it");
  if (const Json* usage = find_field(*stream_options, "include_usage")) {
    options.include_usage = read_bool(*usage, "stream_options.include_usage");
  }
}

}  // namespace

GenerationOptions read_generation_options(const Json& body, std::string_view text,
                                          const ApiLimits& limits) {
  GenerationOptions options;
  const int64_t most = std::min(kMaxChoices, limits.max_choices);
  options.n = static_cast<int>(integer_or(body, "n", 1, most, 1));
  read_streaming(body, options);
  options.sampling = read_sampling(body);
  if (const Json* seed = find_field(body, "seed")) {
    options.seed = static_cast<uint64_t>(read_integer(
        *seed, "seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
  }
  options.penalties.bias = read_biases(body, limits);
  options.penalties.presence = number_or(body, "presence_penalty", -2, 2, 0);
  options.penalties.frequency = number_or(body, "frequency_penalty", -2, 2, 0);
  options.stop = read_stops(body);
  read_form(body, text, options);

  options.ignore_eos = bool_or(body, "ignore_eos", false);
  if (const Json* session = find_field(body, "session")) {
    options.session = read_string(*session, "session");
    if (options.session.empty()) bad_field("session", "expected the id of a session, got ''");
    if (options.n != 1) bad_field("n", "expected 1 with a session, got {}", options.n);
  }
  options.priority = static_cast<int>(integer_or(body, "priority", -kMaxPriority, kMaxPriority, 0));
  options.timeout_s = number_or(body, "timeout_s", 0.001, limits.timeout_s, limits.timeout_s);
  options.cache = bool_or(body, "cache", true);
  return options;
}

int64_t read_max_tokens(const Json& body, std::initializer_list<const char*> names, int64_t low,
                        int64_t otherwise, const ApiLimits& limits) {
  for (const char* name : names) {
    const Json* value = find_field(body, name);
    if (value != nullptr) return read_integer(*value, name, low, limits.max_tokens);
  }
  return std::min(otherwise, limits.max_tokens);
}

void refuse_unsupported(const Json& body, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Json* value = find_field(body, name);
    if (value == nullptr || value->empty()) continue;
    if (value->is_string() && value->get_ref<const std::string&>().empty()) continue;
    throw ApiError(400, fmt::format("{}: not supported by this server", name), name,
                   "unsupported_parameter");
  }
}

void refuse_tool_choice(const Json& body, const char* name) {
  const Json* value = find_field(body, name);
  if (value == nullptr || *value == "none" || *value == "auto") return;
  throw ApiError(400, fmt::format("{}: not supported by this server", name), name,
                 "unsupported_parameter");
}

}  // namespace adder
