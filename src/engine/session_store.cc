#include "engine/session_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <utility>

#include "core/error.h"
#include "engine/session_file.h"

namespace adder {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxId = 64;
constexpr std::string_view kSuffix = ".session";

void check_id(const std::string& id) {
  const auto good = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (id.empty() || id.size() > kMaxId || id[0] == '.' ||
      !std::all_of(id.begin(), id.end(), good)) {
    bad_input(
        "session: expected 1 to {} of A-Z a-z 0-9 . _ - and no dot in front, got {} characters",
        kMaxId, id.size());
  }
}

// A file that a process was writing when it was killed: "ID.session.XXXXXX" (engine/atomic_file.h).
// Another process may be at one now, so it must be old.
bool is_leftover(const fs::directory_entry& entry) {
  constexpr size_t kRandom = 7;  // with the dot
  const std::string name = entry.path().filename();
  if (name.size() <= kRandom || name[name.size() - kRandom] != '.' ||
      !std::string_view(name).substr(0, name.size() - kRandom).ends_with(kSuffix)) {
    return false;
  }
  std::error_code error;
  const auto written = entry.last_write_time(error);
  return !error && fs::file_time_type::clock::now() - written > std::chrono::minutes(10);
}

int64_t unix_time() {
  using std::chrono::system_clock;
  return system_clock::to_time_t(system_clock::now());
}

}  // namespace

SessionStore::SessionStore(Engine& engine, const std::string& folder, uint64_t budget_bytes)
    : engine_(engine), folder_(folder), budget_(budget_bytes) {
  if (!folder_.empty()) scan_folder();
}

void SessionStore::scan_folder() {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot make the folder: {}", folder_, error.message());
  fs::directory_iterator files(folder_, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot read the folder: {}", folder_, error.message());
  for (const fs::directory_entry& entry : files) {
    const std::string name = entry.path().filename();
    if (is_leftover(entry)) fs::remove(entry.path(), error);
    if (!name.ends_with(kSuffix)) continue;
    const std::string id = name.substr(0, name.size() - kSuffix.size());
    Session session;
    session.info.id = id;
    session.info.saved = true;
    try {
      check_id(id);
      SavedSession saved = load_session(engine_, entry.path(), true);
      saved.info.id = id;  // the file may have been renamed
      saved.info.saved = true;
      session.info = saved.info;
    } catch (const Error& e) {
      session.info.problem = e.what();
    }
    sessions_.emplace(id, std::move(session));
  }
}

std::string SessionStore::path_of(const std::string& id) const {
  return (fs::path(folder_) / (id + std::string(kSuffix))).string();
}

SessionStore::Session& SessionStore::find(const std::string& id) {
  check_id(id);
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) fail(ErrorCode::kNotFound, "session: '{}' does not exist", id);
  return it->second;
}

const SessionStore::Session& SessionStore::find(const std::string& id) const {
  return const_cast<SessionStore*>(this)->find(id);
}

SessionStore::Session& SessionStore::find_idle(const std::string& id) {
  Session& session = find(id);
  if (session.info.busy) fail(ErrorCode::kBusy, "session: '{}' is in use by a request", id);
  return session;
}

// The id itself when it can be taken, or one that nobody has.
std::string SessionStore::new_id(const std::string& wanted) {
  if (!wanted.empty()) {
    check_id(wanted);
    if (sessions_.contains(wanted)) {
      fail(ErrorCode::kConflict, "session: '{}' exists already", wanted);
    }
    return wanted;
  }
  std::random_device random;
  for (;;) {
    std::string id = fmt::format("{:08x}{:08x}", random(), random());
    if (!sessions_.contains(id)) return id;
  }
}

uint64_t SessionStore::bytes() const {
  uint64_t sum = 0;
  for (const auto& [id, session] : sessions_) sum += session.history.bytes();
  return sum;
}

// Sends the least recently used sessions to disk until the rest fits the budget, as far as that can
// be done.
void SessionStore::make_room() {
  while (bytes() > budget_) {
    Session* oldest = nullptr;
    for (auto& [id, session] : sessions_) {
      if (!session.history.state() || session.info.busy ||
          (!session.info.saved && folder_.empty())) {
        continue;
      }
      if (oldest == nullptr || session.used < oldest->used) oldest = &session;
    }
    if (oldest == nullptr) return;
    if (!oldest->info.saved) {
      try {
        save(oldest->info.id);
      } catch (const Error& e) {
        // Whoever needs the room is not to blame; create() refuses when it is really spent.
        oldest->info.problem = e.what();
        return;
      }
    }
    oldest->history.clear();
  }
}

// Brings a session that is on disk only back to memory.
void SessionStore::load(Session& session) {
  session.used = ++clock_;
  if (session.history.state() || !session.info.saved) return;
  try {
    SavedSession saved = load_session(engine_, path_of(session.info.id), false);
    session.history = ConversationHistory(std::move(saved.state), std::move(saved.stretches));
    session.info.parent = saved.info.parent;
    session.info.created = saved.info.created;
    session.info.tokens = saved.info.tokens;
    session.info.turns = saved.info.turns;
    session.info.problem.clear();
  } catch (const Error& e) {
    session.info.problem = e.what();
    throw;
  }
}

SessionInfo SessionStore::describe(const Session& session) const {
  SessionInfo info = session.info;
  info.bytes = session.history.bytes();
  return info;
}

SessionInfo SessionStore::create(const std::string& id) {
  make_room();
  if (bytes() > budget_) {
    fail(ErrorCode::kBusy, "session: the sessions take {} of {} bytes; delete some", bytes(),
         budget_);
  }
  Session session;
  session.info.id = new_id(id);
  session.info.created = unix_time();
  session.used = ++clock_;
  return describe(sessions_.emplace(session.info.id, std::move(session)).first->second);
}

SessionInfo SessionStore::fork(const std::string& from, const std::string& id) {
  Session& source = find_idle(from);
  load(source);
  // The states are shared until one of the two goes on.
  const ConversationHistory history = source.history;
  const int64_t turns = source.info.turns, tokens = source.info.tokens;
  const std::string made = create(id).id;
  Session& copy = find(made);
  copy.info.parent = from;
  copy.info.turns = turns;
  copy.info.tokens = tokens;
  copy.history = history;
  return describe(copy);
}

std::vector<SessionInfo> SessionStore::list() const {
  std::vector<SessionInfo> all;
  for (const auto& [id, session] : sessions_) all.push_back(describe(session));
  return all;
}

SessionInfo SessionStore::info(const std::string& id) const {
  return describe(find(id));
}

SessionInfo SessionStore::save(const std::string& id) {
  Session& session = find_idle(id);
  ADDER_CHECK(!folder_.empty(), "session: expected a folder for sessions to save '{}' in, got none",
              id);
  load(session);
  save_session(engine_, {describe(session), session.history.stretches(), session.history.state()},
               path_of(id));
  session.info.saved = true;
  return describe(session);
}

SessionInfo SessionStore::restore(const std::string& id) {
  Session& session = find_idle(id);
  ADDER_CHECK(!folder_.empty(),
              "session: expected a folder for sessions to restore '{}' from, got "
              "none",
              id);
  if (!fs::exists(path_of(id))) {
    fail(ErrorCode::kNotFound, "session: '{}' has not been saved", id);
  }
  Session fresh;
  fresh.info.id = id;
  fresh.info.saved = true;
  load(fresh);
  session = std::move(fresh);
  return describe(session);
}

void SessionStore::remove(const std::string& id) {
  find_idle(id);
  if (!folder_.empty()) {
    std::error_code error;
    fs::remove(path_of(id), error);
    if (error) fail(ErrorCode::kIo, "{}: cannot delete it: {}", path_of(id), error.message());
  }
  sessions_.erase(id);
}

std::shared_ptr<const ParkedState> SessionStore::lease(const std::string& id) {
  Session& session = find_idle(id);
  load(session);
  session.info.busy = true;
  return session.history.state();
}

void SessionStore::release(const std::string& id) {
  find(id).info.busy = false;
}

void SessionStore::advance(const std::string& id, ParkedState state,
                           std::span<const Stretch> stretches) {
  Session& session = find(id);
  session.history.advance(std::move(state), stretches);
  session.info.tokens = session.history.length();
  ++session.info.turns;
  session.info.saved = false;
  session.info.busy = false;
  make_room();
}

Replay SessionStore::plan_rollback(const std::string& id, int64_t tokens) const {
  return find(id).history.plan_rollback(tokens);
}

void SessionStore::rolled_back(const std::string& id, std::shared_ptr<const ParkedState> state) {
  Session& session = find(id);
  session.history.rolled_back(std::move(state));
  session.info.tokens = session.history.length();
  session.info.saved = false;
  session.info.busy = false;
}

}  // namespace adder
