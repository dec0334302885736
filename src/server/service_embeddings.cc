// /v1/embeddings: prompts go through the engine a block at a time, between the steps of others.
#include <utility>

#include "server/embedding_response.h"
#include "server/replies.h"
#include "server/service.h"

namespace adder {

struct Service::EmbeddingJob {
  std::shared_ptr<HttpReply> reply;
  std::vector<std::vector<int32_t>> inputs;
  Pooling pooling = Pooling::kMean;
  bool base64 = false;
  std::chrono::steady_clock::time_point deadline;

  std::unique_ptr<EmbeddingRun> run;  // of the input after `done`; null while there is no slot
  std::vector<std::vector<float>> done;
  int64_t tokens = 0;
};

void Service::embeddings(Call& call) {
  EmbeddingRequest request = parse_embedding_request(call.request.body, limits_);
  auto job = std::make_shared<EmbeddingJob>();
  job->reply = call.reply;
  job->pooling = request.last ? Pooling::kLast : Pooling::kMean;
  job->base64 = request.base64;
  job->deadline = call.arrived + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                     std::chrono::duration<double>(limits_.timeout_s));
  for (const PromptInput& input : request.inputs) {
    job->inputs.push_back(encode_prompt(input, true));
    job->tokens += static_cast<int64_t>(job->inputs.back().size());
  }
  in_engine(job->reply,
            [this, job](const Scheduler::Inside& inside) { step_embedding(job, inside); });
}

void Service::step_embedding(const std::shared_ptr<EmbeddingJob>& job,
                             const Scheduler::Inside& inside) {
  if (job->reply->gone()) return;
  const auto again = [this, &job] {
    in_engine(job->reply,
              [this, job = job](const Scheduler::Inside& next) { step_embedding(job, next); });
  };
  const auto now = std::chrono::steady_clock::now();
  // Its jobs would keep the scheduler from coming to an end.
  if (now >= drain_by_.load()) {
    throw ApiError(503, "the server is shutting down", "", "shutting_down");
  }
  if (now >= job->deadline) {
    throw ApiError(408, "the request took longer than the server allows", "", "timeout");
  }
  if (job->run == nullptr) {
    // A slot that somebody gives back is seen here before waiting requests get it.
    if (inside.free_slots < 1) return again();
    job->run =
        std::make_unique<EmbeddingRun>(inside.engine, job->inputs[job->done.size()], job->pooling);
  }
  if (job->run->advance()) {
    job->done.push_back(job->run->result());
    job->run.reset();
  }
  if (job->done.size() == job->inputs.size()) {
    send_json(*job->reply, 200,
              embeddings_body(limits_.model, job->done, job->tokens, job->base64));
    return;
  }
  again();
}

}  // namespace adder
