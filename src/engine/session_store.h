// Named conversations: parked on the host between requests, forked, rolled back, saved, restored.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/conversation_history.h"
#include "engine/engine.h"

namespace adder {

struct SessionInfo {
  std::string id;
  std::string parent;   // it was forked from this one; empty: from none
  int64_t created = 0;  // Unix time, seconds
  int64_t tokens = 0;   // in its state
  int64_t turns = 0;    // requests that it went through
  uint64_t bytes = 0;   // in memory; 0: on disk only
  bool saved = false;   // a file holds exactly this
  bool busy = false;    // a request is using it
  std::string problem;  // why its file cannot be used; empty: nothing is known to be wrong
};

// Ids are 1 to 64 of A-Z a-z 0-9 . _ -, and do not begin with a dot. Methods throw
// Error(kBadInput) for other ids, Error(kNotFound) for unknown ones, Error(kBusy) for one in use,
// Error(kConflict) where an id is taken. Sessions whose file holds exactly what they are leave
// memory when the budget is spent, and come back when they are used; with a folder, others are
// saved first. Not thread-safe: one thread drives it together with the engine.
class SessionStore {
 public:
  // folder: where DIR/ID.session files are; made if need be. Empty: sessions live in memory alone.
  // Throws Error(kIo) when the folder cannot be made or read.
  SessionStore(Engine& engine, const std::string& folder, uint64_t budget_bytes);

  // Empty id: a new one is made up. Throws Error(kBusy) when the memory is spent.
  SessionInfo create(const std::string& id);
  SessionInfo fork(const std::string& from, const std::string& id);
  std::vector<SessionInfo> list() const;  // by id
  SessionInfo info(const std::string& id) const;
  // Writes the file whole or not at all. Throws Error(kIo), or kBadInput without a folder.
  SessionInfo save(const std::string& id);
  // Back to what the file holds. Throws Error(kBadInput) for a damaged or foreign file.
  SessionInfo restore(const std::string& id);
  // From memory and disk.
  void remove(const std::string& id);
  int64_t size() const { return static_cast<int64_t>(sessions_.size()); }
  uint64_t bytes() const;

  // For a request: marks the session as in use, until release() or advance(). The state is null
  // before its first request.
  std::shared_ptr<const ParkedState> lease(const std::string& id);
  void release(const std::string& id);
  // The request is over: `state` follows the leased one by these stretches, oldest first.
  void advance(const std::string& id, ParkedState state, std::span<const Stretch> stretches);

  // How to get to what a leased session was `tokens` tokens ago. Throws Error(kBadInput) when it
  // has not that many. rolled_back() is the end of it; a null state: nothing is left.
  Replay plan_rollback(const std::string& id, int64_t tokens) const;
  void rolled_back(const std::string& id, std::shared_ptr<const ParkedState> state);

 private:
  struct Session {
    SessionInfo info;
    ConversationHistory history;
    uint64_t used = 0;  // the larger, the later
  };

  std::string path_of(const std::string& id) const;
  void scan_folder();
  Session& find(const std::string& id);
  Session& find_idle(const std::string& id);
  const Session& find(const std::string& id) const;
  std::string new_id(const std::string& wanted);
  void load(Session& session);
  void make_room();
  SessionInfo describe(const Session& session) const;

  Engine& engine_;
  std::string folder_;
  uint64_t budget_, clock_ = 0;
  std::map<std::string, Session> sessions_;
};

}  // namespace adder
