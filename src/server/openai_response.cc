#include "server/openai_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "server/json.h"

namespace adder {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

int64_t count_characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return !is_continuation(c); });
}

// Clients tell tokens apart by their text, so parts of characters need a spelling of their own;
// this is OpenAI's.
std::string token_text(std::string_view bytes) {
  const Json text = std::string(bytes);
  try {
    return text.dump();
  } catch (const Json::type_error&) {
    std::string spelled = "bytes:";
    for (const char c : bytes) {
      fmt::format_to(std::back_inserter(spelled), "\\x{:02x}", static_cast<unsigned char>(c));
    }
    return Json(spelled).dump();
  }
}

// JSON has no infinity; OpenAI's clients know this number for "impossible".
std::string logprob_text(float logprob) {
  return fmt::format("{}", logprob > -9999.0f ? logprob : -9999.0f);
}

template <typename Range, typename Function>
std::string json_list(const Range& range, const Function& format) {
  std::string list = "[";
  for (const auto& entry : range) {
    if (list.size() > 1) list += ',';
    list += format(entry);
  }
  return list += ']';
}

std::string top_map(const SpelledToken& token) {
  std::string map =
      fmt::format("{{{}:{}", token_text(token.chosen.bytes), logprob_text(token.chosen.logprob));
  for (const SpelledLogprob& other : token.top) {
    if (other.bytes == token.chosen.bytes) continue;
    map += fmt::format(",{}:{}", token_text(other.bytes), logprob_text(other.logprob));
  }
  return map += '}';
}

std::string chat_entry(const SpelledLogprob& p) {
  return fmt::format(
      R"("token":{},"logprob":{},"bytes":{})", token_text(p.bytes), logprob_text(p.logprob),
      json_list(p.bytes, [](char c) { return std::to_string(static_cast<unsigned char>(c)); }));
}

std::string_view object_name(const AnswerHead& head, bool chunk) {
  if (!head.chat) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

std::string head_fields(const AnswerHead& head, bool chunk) {
  return fmt::format(R"("id":"{}","object":"{}","created":{},"model":{},"choices":[)", head.id,
                     object_name(head, chunk), head.created, dump(head.model));
}

double per_second(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

}  // namespace

SpelledToken spell(const Tokenizer& tokenizer, const TokenLogprobs& token) {
  const auto entry = [&](const TokenLogprob& p) {
    return SpelledLogprob{std::string(tokenizer.token_bytes(p.token)), p.logprob};
  };
  SpelledToken spelled{entry(token.chosen), {}};
  for (const TokenLogprob& other : token.top) spelled.top.push_back(entry(other));
  return spelled;
}

std::string completion_logprobs(std::span<const SpelledToken> tokens, int64_t& offset) {
  const std::string names =
      json_list(tokens, [](const SpelledToken& t) { return token_text(t.chosen.bytes); });
  const std::string values =
      json_list(tokens, [](const SpelledToken& t) { return logprob_text(t.chosen.logprob); });
  const std::string offsets = json_list(tokens, [&offset](const SpelledToken& t) {
    const int64_t here = offset;
    offset += count_characters(t.chosen.bytes);
    return std::to_string(here);
  });
  return fmt::format(R"({{"tokens":{},"token_logprobs":{},"top_logprobs":{},"text_offset":{}}})",
                     names, values, json_list(tokens, top_map), offsets);
}

std::string chat_logprobs(std::span<const SpelledToken> tokens) {
  const std::string content = json_list(tokens, [](const SpelledToken& t) {
    const std::string top = json_list(
        t.top, [](const SpelledLogprob& p) { return fmt::format("{{{}}}", chat_entry(p)); });
    return fmt::format(R"({{{},"top_logprobs":{}}})", chat_entry(t.chosen), top);
  });
  return fmt::format(R"({{"content":{},"refusal":null}})", content);
}

std::string usage_json(const RequestUsage& u) {
  return fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                     R"("prompt_tokens_details":{{"cached_tokens":{}}}}})",
                     u.prompt_tokens, u.completion_tokens, u.prompt_tokens + u.completion_tokens,
                     u.cached_tokens);
}

std::string timings_json(const RequestUsage& u) {
  return fmt::format(
      R"({{"queue_s":{:.6f},"prefill_s":{:.6f},"prefill_tok_s":{:.1f},"decode_s":{:.6f},)"
      R"("decode_tok_s":{:.1f}}})",
      u.queue_s, u.prefill_s, per_second(u.prompt_tokens - u.cached_tokens, u.prefill_s),
      u.decode_s, per_second(std::max<int64_t>(0, u.completion_tokens - 1), u.decode_s));
}

std::string answer_body(const AnswerHead& head, std::span<const AnswerChoice> choices,
                        const RequestUsage& usage) {
  std::string body = fmt::format("{{{}", head_fields(head, false));
  for (size_t i = 0; i < choices.size(); ++i) {
    const AnswerChoice& choice = choices[i];
    const std::string text = dump(choice.text);
    const std::string content =
        head.chat
            ? fmt::format(R"("message":{{"role":"assistant","content":{},"refusal":null}})", text)
            : fmt::format(R"("text":{})", text);
    body +=
        fmt::format(R"({}{{"index":{},{},"logprobs":{},"finish_reason":"{}"}})", i > 0 ? "," : "",
                    i, content, choice.logprobs, finish_reason_name(choice.finish));
  }
  return body +
         fmt::format(R"(],"usage":{},"timings":{}}})", usage_json(usage), timings_json(usage));
}

ChunkWriter::ChunkWriter(const AnswerHead& head, bool with_usage)
    : chat_(head.chat),
      head_("data: {" + head_fields(head, true)),
      tail_(with_usage ? "],\"usage\":null}\n\n" : "]}\n\n") {}

void ChunkWriter::begin(int choice) {
  out_ = head_;
  out_ += R"({"index":)";
  fmt::format_to(std::back_inserter(out_), "{}", choice);
}

std::string_view ChunkWriter::close(std::string_view logprobs, std::string_view reason) {
  out_ += R"(,"logprobs":)";
  out_ += logprobs;
  out_ += R"(,"finish_reason":)";
  out_ += reason;
  out_ += '}';
  out_ += tail_;
  return out_;
}

std::string_view ChunkWriter::role(int choice) {
  begin(choice);
  out_ += R"(,"delta":{"role":"assistant","content":"","refusal":null})";
  return close("null", "null");
}

std::string_view ChunkWriter::text(int choice, std::string_view text, std::string_view logprobs) {
  begin(choice);
  out_ += chat_ ? R"(,"delta":{"content":)" : R"(,"text":)";
  append_json_string(out_, text);
  if (chat_) out_ += '}';
  return close(logprobs, "null");
}

std::string_view ChunkWriter::finish(int choice, FinishReason reason, std::string_view logprobs) {
  begin(choice);
  out_ += chat_ ? R"(,"delta":{})" : R"(,"text":"")";
  return close(logprobs, fmt::format("\"{}\"", finish_reason_name(reason)));
}

std::string_view ChunkWriter::usage(const RequestUsage& usage) {
  out_ = fmt::format("{}],\"usage\":{},\"timings\":{}}}\n\n", head_, usage_json(usage),
                     timings_json(usage));
  return out_;
}

std::string_view ChunkWriter::error(const ApiError& error) {
  out_ = fmt::format("data: {}\n\n", error_body(error));
  return out_;
}

}  // namespace adder
