// /v1/sessions: conversations that the server keeps. All work on them is the scheduler's.
#include <utility>

#include "server/replies.h"
#include "server/service.h"
#include "server/state_response.h"

namespace adder {

void Service::answer_with_session(const Call& call,
                                  std::function<SessionInfo(SessionStore&)> work) {
  in_engine(call.reply,
            [reply = call.reply, work = std::move(work)](const Scheduler::Inside& inside) {
              send_json(*reply, 200, session_json(work(inside.sessions)));
            });
}

void Service::list_sessions(Call& call) {
  in_engine(call.reply, [reply = call.reply](const Scheduler::Inside& inside) {
    send_json(*reply, 200, session_list_json(inside.sessions.list()));
  });
}

void Service::create_session(Call& call) {
  answer_with_session(call, [id = parse_session_id(call.request.body)](SessionStore& sessions) {
    return sessions.create(id);
  });
}

void Service::get_session(Call& call) {
  answer_with_session(
      call, [id = call.arguments[0]](SessionStore& sessions) { return sessions.info(id); });
}

void Service::delete_session(Call& call) {
  in_engine(call.reply,
            [reply = call.reply, id = call.arguments[0]](const Scheduler::Inside& inside) {
              inside.sessions.remove(id);
              send_json(*reply, 200, session_deleted_json(id));
            });
}

void Service::fork_session(Call& call) {
  answer_with_session(call, [from = call.arguments[0], id = parse_session_id(call.request.body)](
                                SessionStore& sessions) { return sessions.fork(from, id); });
}

void Service::save_session(Call& call) {
  answer_with_session(
      call, [id = call.arguments[0]](SessionStore& sessions) { return sessions.save(id); });
}

void Service::restore_session(Call& call) {
  answer_with_session(
      call, [id = call.arguments[0]](SessionStore& sessions) { return sessions.restore(id); });
}

void Service::roll_session_back(Call& call) {
  const std::string id = call.arguments[0];
  const auto reply = call.reply;
  scheduler_.rollback(id, parse_rollback(call.request.body), [this, id, reply](const Error* error) {
    if (error != nullptr) return send_error(*reply, to_api_error(*error));
    in_engine(reply, [id, reply](const Scheduler::Inside& inside) {
      send_json(*reply, 200, session_json(inside.sessions.info(id)));
    });
  });
}

}  // namespace adder
