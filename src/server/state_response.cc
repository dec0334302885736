#include "server/state_response.h"

#include "server/json.h"

namespace adder {
namespace {

OrderedJson session_object(const SessionInfo& s) {
  OrderedJson out;
  out["id"] = s.id;
  out["object"] = "session";
  out["parent"] = s.parent.empty() ? OrderedJson() : OrderedJson(s.parent);
  out["created"] = s.created;
  out["tokens"] = s.tokens;
  out["turns"] = s.turns;
  out["bytes"] = s.bytes;
  out["saved"] = s.saved;
  out["busy"] = s.busy;
  out["problem"] = s.problem.empty() ? OrderedJson() : OrderedJson(s.problem);
  return out;
}

OrderedJson list_object(OrderedJson data) {
  OrderedJson out;
  out["object"] = "list";
  out["data"] = std::move(data);
  return out;
}

OrderedJson layer_object(size_t index, const LayerState& layer) {
  OrderedJson out;
  out["layer"] = index;
  out["norm"] = layer.norm;
  out["deviation"] = layer.deviation;
  out["conv_norm"] = layer.conv_norm;
  out["non_finite"] = layer.non_finite;
  out["drift"] = layer.drift;
  return out;
}

}  // namespace

std::string session_json(const SessionInfo& session) {
  return dump(session_object(session));
}

std::string session_list_json(std::span<const SessionInfo> sessions) {
  OrderedJson data = OrderedJson::array();
  for (const SessionInfo& session : sessions) data.push_back(session_object(session));
  return dump(list_object(std::move(data)));
}

std::string session_deleted_json(std::string_view id) {
  OrderedJson out;
  out["id"] = id;
  out["object"] = "session.deleted";
  out["deleted"] = true;
  return dump(out);
}

std::string state_list_json(std::span<const SequenceState> sequences,
                            const RunningAnswers& running) {
  OrderedJson data = OrderedJson::array();
  for (const SequenceState& sequence : sequences) {
    const auto found = running.find(sequence.ticket);
    const bool known = found != running.end();
    OrderedJson entry;
    entry["id"] = known ? OrderedJson(found->second.id) : OrderedJson();
    entry["choice"] = sequence.choice + (known ? found->second.first_choice : 0);
    entry["session"] = sequence.session.empty() ? OrderedJson() : OrderedJson(sequence.session);
    entry["tokens"] = sequence.tokens;
    entry["layers"] = OrderedJson::array();
    for (size_t i = 0; i < sequence.layers.size(); ++i) {
      entry["layers"].push_back(layer_object(i, sequence.layers[i]));
    }
    data.push_back(std::move(entry));
  }
  return dump(list_object(std::move(data)));
}

}  // namespace adder
