// What a client asks of the scheduler, and how it is told.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/generator.h"
#include "engine/session_store.h"
#include "engine/state_cache.h"
#include "engine/state_monitor.h"
#include "engine/stepper.h"

namespace adder {

struct ServeRequest {
  // prompt, max_tokens, sampling, stop, stop_tokens, want_logprobs, top_logprobs, ignore_eos and
  // editor count; the rest of it is the scheduler's.
  GenerationRequest generation;
  int n = 1;  // answers; the prompt is processed once. Answer i has the seed sampling.seed + i
  int priority = 0;  // higher first among those that wait; equals in the order of arrival
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  // Continues this session and leaves it advanced by prompt and answer; n must be 1. Empty: none.
  std::string session;
  bool use_cache = true;  // look for the prompt's prefixes, and keep its own
};

struct RequestUsage {
  int64_t prompt_tokens = 0;  // of the whole sequence before the answer; a session's past included
  int64_t cached_tokens = 0;  // of those, not processed again
  int64_t completion_tokens = 0;  // of all answers
  double queue_s = 0;             // until it was admitted
  double prefill_s = 0;           // from there until the first token
  double decode_s = 0;            // from there to the end
};

// Told about one request on the scheduler's thread. Calls must be short and must not throw.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  // The request was admitted.
  virtual void on_start(int64_t prompt_tokens, int64_t cached_tokens) = 0;
  // A token of answer `choice`: text that is complete with it (whole UTF-8 characters, nothing of a
  // stop string; often empty), valid during the call. logprobs: null unless asked for.
  virtual void on_token(int choice, int32_t token, std::string_view text,
                        const TokenLogprobs* logprobs) = 0;
  // Answer `choice` has ended; `text` is what was held back until now.
  virtual void on_finish(int choice, FinishReason reason, std::string_view text) = 0;
  // All answers have ended. Nothing follows.
  virtual void on_done(const RequestUsage& usage) = 0;
  // The request failed: kNotFound and kBusy for its session, kTimeout for its deadline, kBadInput
  // for a grammar that has no way on, kInternal for a state that is not finite. Nothing follows.
  virtual void on_error(const Error& error) = 0;
};

struct SchedulerOptions {
  int64_t max_queue = 256;                     // requests that wait for slots; more are refused
  int64_t snapshot_every = 512;                // tokens of a prompt; 0: only at its end
  uint64_t cache_bytes = uint64_t{1} << 30;    // of snapshots in memory; 0: no cache
  std::string session_dir;                     // where sessions are saved; empty: they cannot be
  uint64_t session_bytes = uint64_t{2} << 30;  // of sessions in memory
  int64_t monitor_every = 256;  // tokens of a sequence between two looks at its state; 0: never
  // Of a layer, root mean square; a sequence beyond it ends with an error. 0: no such limit.
  double max_state_norm = 0;
};

// What the parts of the scheduler share.
struct ServeContext {
  Engine& engine;
  StateCache& cache;
  SessionStore& sessions;
  StateMonitor& monitor;
  const SchedulerOptions& options;
  Stepper stepper;
};

}  // namespace adder
