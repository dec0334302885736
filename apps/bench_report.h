// How `bench` and `roofline` print what was measured.
#pragma once

#include <string>

#include "bench_source.h"
#include "measure/model_bench.h"

namespace adder::cli {

// One JSON object, or tables for a reader.
std::string bench_json(const BenchModel& model, const ModelBenchOptions& options,
                       const ModelBenchResult& result);
std::string bench_table(const BenchModel& model, const ModelBenchResult& result);

// A phase's operations, each against the limit that binds it.
std::string profile_table(const std::string& title, const PhaseResult& phase,
                          const LimitRates& rates);

std::string prefill_title(const ModelBenchResult& result);  // "prefill 512"
std::string decode_title(const PhaseResult& phase);         // "decode 128 x 4"

}  // namespace adder::cli
