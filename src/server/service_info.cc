// Endpoints that tell about the server, its model and what runs.
#include "server/json.h"
#include "server/replies.h"
#include "server/service.h"
#include "server/state_response.h"
#include "server/web_page.h"

namespace adder {
namespace {

OrderedJson model_object(const std::string& id, int64_t created, const ModelConfig& config) {
  OrderedJson out;
  out["id"] = id;
  out["object"] = "model";
  out["created"] = created;
  out["owned_by"] = "adder";
  out["architecture"] = {{"family", config.family},
                         {"n_layer", config.n_layer},
                         {"d_model", config.d_model},
                         {"vocab_size", config.vocab_size},
                         {"state_bytes", config.state_bytes()}};
  return out;
}

}  // namespace

void Service::page(Call& call) {
  const WebPage& page = web_page();
  const std::string* known = call.request.header("If-None-Match");
  if (known != nullptr && *known == page.etag) {
    call.reply->send(304, "", "", page.headers);
    return;
  }
  call.reply->send(200, "text/html; charset=utf-8", page.html, page.headers);
}

void Service::health(Call& call) {
  send_json(*call.reply, 200, R"({"status":"ok"})");
}

void Service::ready(Call& call) {
  if (draining_) throw ApiError(503, "the server is shutting down", "", "shutting_down");
  send_json(*call.reply, 200, R"({"status":"ready"})");
}

void Service::metrics(Call& call) {
  MetricsSources sources;
  sources.scheduler = scheduler_.stats();
  sources.model = limits_.model;
  if (http_stats_) {
    const HttpStats http = http_stats_();
    sources.connections = http.open;
    sources.connections_total = http.accepted;
    sources.connections_refused = http.refused;
  }
  call.reply->send(200, "text/plain; version=0.0.4; charset=utf-8", metrics_.text(sources));
}

void Service::models(Call& call) {
  OrderedJson data = OrderedJson::array();
  data.push_back(model_object(limits_.model, started_, engine_.config()));
  for (const std::string& alias : limits_.aliases) {
    data.push_back(model_object(alias, started_, engine_.config()));
  }
  send_json(*call.reply, 200, dump({{"object", "list"}, {"data", std::move(data)}}));
}

void Service::model(Call& call) {
  const std::string& id = call.arguments.front();
  check_model(id, limits_);
  send_json(*call.reply, 200, dump(model_object(id, started_, engine_.config())));
}

void Service::tokenize(Call& call) {
  const TokenizeRequest request = parse_tokenize_request(call.request.body);
  std::vector<int32_t> tokens;
  if (request.is_chat) {
    tokens = encode_chat(tokenizer_, template_, request.messages);
    const bool begins =
        !tokens.empty() && tokenizer_.wants_bos() && tokens.front() == *tokenizer_.bos_id();
    if (begins && !request.add_special) tokens.erase(tokens.begin());
  } else {
    tokens = tokenizer_.encode(request.content, {.add_bos = request.add_special});
  }
  send_json(*call.reply, 200, dump({{"tokens", tokens}}));
}

void Service::detokenize(Call& call) {
  const auto ids = parse_detokenize_request(call.request.body, tokenizer_.size());
  send_json(*call.reply, 200, dump({{"content", tokenizer_.decode(ids)}}));
}

void Service::state(Call& call) {
  in_engine(call.reply, [this, reply = call.reply](const Scheduler::Inside& inside) {
    send_json(*reply, 200, state_list_json(inside.monitor.sequences(), running_));
  });
}

}  // namespace adder
