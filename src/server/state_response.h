// Sessions and measurements of states as JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/session_store.h"
#include "engine/state_monitor.h"
#include "server/answer.h"

namespace adder {

// {"id", "object": "session", "parent", "created", "tokens", "turns", "bytes", "saved", "busy",
// "problem"}
std::string session_json(const SessionInfo& session);
std::string session_list_json(std::span<const SessionInfo> sessions);
// {"id", "object": "session.deleted", "deleted": true}
std::string session_deleted_json(std::string_view id);

// {"object": "list", "data": [{"id", "choice", "session", "tokens", "layers": [{"layer", "norm",
// "deviation", "conv_norm", "non_finite", "drift"}]}]}; numbers that are not finite are null.
std::string state_list_json(std::span<const SequenceState> sequences,
                            const RunningAnswers& running);

}  // namespace adder
