// /v1/completions and /v1/chat/completions: parsed bodies become requests of the scheduler.
#include <ctime>
#include <random>
#include <utility>

#include "engine/chat.h"
#include "server/replies.h"
#include "server/service.h"

namespace adder {
namespace {

uint64_t random_bits() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

}  // namespace

std::vector<int32_t> Service::encode_prompt(const PromptInput& prompt, bool fresh) const {
  if (!prompt.ids.empty()) return prompt.ids;
  std::vector<int32_t> ids = tokenizer_.encode(prompt.text, {.add_bos = fresh});
  // Without any text the model begins one, as after the end of another.
  const auto start = tokenizer_.bos_id() ? tokenizer_.bos_id() : tokenizer_.eos_id();
  if (ids.empty() && fresh && start) ids.push_back(*start);
  return ids;
}

AnswerOptions Service::answer_options(const Call& call, const GenerationOptions& options,
                                      bool chat) const {
  AnswerOptions answer;
  answer.head.id = fmt::format("{}-{:016x}", chat ? "chatcmpl" : "cmpl", random_bits());
  answer.head.created = static_cast<int64_t>(std::time(nullptr));
  answer.head.model = limits_.model;
  answer.head.chat = chat;
  answer.choices_per_request = options.n;
  answer.stream = options.stream;
  answer.include_usage = options.include_usage;
  answer.want_logprobs = options.want_logprobs;
  answer.strip_blank = chat && answers_begin_with_blank(template_);
  answer.arrived = call.arrived;
  return answer;
}

ServeRequest Service::serve_request(const GenerationOptions& options, const Call& call) const {
  using std::chrono::steady_clock;
  ServeRequest request;
  request.n = options.n;
  request.priority = options.priority;
  request.deadline = call.arrived + std::chrono::duration_cast<steady_clock::duration>(
                                        std::chrono::duration<double>(options.timeout_s));
  request.session = options.session;
  request.use_cache = options.cache;
  GenerationRequest& generation = request.generation;
  generation.max_tokens = options.max_tokens;
  generation.sampling = options.sampling;
  generation.sampling.seed = options.seed ? *options.seed : random_bits();
  generation.stop = options.stop;
  generation.want_logprobs = options.want_logprobs;
  generation.top_logprobs = options.top_logprobs;
  generation.ignore_eos = options.ignore_eos;
  return request;
}

GrammarMatcher Service::find_grammar(const GenerationOptions& options) {
  const bool is_gbnf = options.form == AnswerForm::kGrammar;
  try {
    if (is_gbnf) return grammars_.gbnf(options.form_text);
    return options.form == AnswerForm::kJsonSchema ? grammars_.json_schema(options.form_text)
                                                   : grammars_.any_json_object();
  } catch (const Error& error) {
    throw ApiError(400, error.what(), is_gbnf ? "grammar" : "response_format");
  }
}

std::unique_ptr<LogitEditor> Service::make_editor(const GenerationOptions& options,
                                                  const std::vector<int32_t>& stop_tokens) {
  std::vector<std::unique_ptr<LogitEditor>> editors;
  if (options.penalties.any()) editors.push_back(make_penalty_editor(options.penalties));
  if (options.form != AnswerForm::kText) {
    std::vector<int32_t> end_ids = stop_tokens;
    const std::vector<int32_t>& eos = grammars_.eos_ids();
    if (!options.ignore_eos) end_ids.insert(end_ids.end(), eos.begin(), eos.end());
    editors.push_back(make_grammar_editor(find_grammar(options), std::move(end_ids)));
  }
  return chain_editors(std::move(editors));
}

void Service::start(const Call& call, const GenerationOptions& options, AnswerOptions answer,
                    const ServeRequest& request, const std::vector<Encode>& prompts) {
  const auto editor = make_editor(options, request.generation.stop_tokens);
  auto requests = std::make_shared<std::vector<ServeRequest>>();
  for (size_t i = 0; i < prompts.size(); ++i) {
    ServeRequest& copy = requests->emplace_back(request);
    // Choice k of the answer has the seed + k, whichever prompt it belongs to.
    copy.generation.sampling.seed += i * static_cast<uint64_t>(options.n);
    if (editor) copy.generation.editor = editor->clone();
    if (options.session.empty()) copy.generation.prompt = prompts[i](true);
  }
  const auto running = std::make_shared<Answer>(context_, std::move(answer), call.reply);
  // What a session has seen is only certain between two steps.
  in_engine(call.reply, [running, requests, encode = prompts.front()](const auto& inside) {
    ServeRequest& first = requests->front();
    if (!first.session.empty()) {
      first.generation.prompt = encode(inside.sessions.info(first.session).tokens == 0);
    }
    running->submit(std::move(*requests));
  });
}

void Service::completions(Call& call) {
  const CompletionRequest parsed = parse_completion_request(call.request.body, limits_);
  AnswerOptions answer = answer_options(call, parsed.options, false);
  std::vector<Encode> prompts;
  for (const PromptInput& prompt : parsed.prompts) {
    prompts.emplace_back([this, prompt](bool fresh) { return encode_prompt(prompt, fresh); });
    if (!parsed.echo) continue;
    answer.echoes.push_back(prompt.ids.empty() ? prompt.text : tokenizer_.decode(prompt.ids));
  }
  start(call, parsed.options, std::move(answer), serve_request(parsed.options, call), prompts);
}

void Service::chat_completions(Call& call) {
  const ChatRequest parsed = parse_chat_request(call.request.body, limits_);
  ServeRequest request = serve_request(parsed.options, call);
  add_chat_stops(tokenizer_, template_, request.generation);
  const auto encode = [this, messages = parsed.messages](bool fresh) {
    return fresh ? encode_chat(tokenizer_, template_, messages)
                 : encode_chat_continuation(tokenizer_, template_, messages);
  };
  start(call, parsed.options, answer_options(call, parsed.options, true), request, {encode});
}

}  // namespace adder
