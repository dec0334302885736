// The subcommands of `adder`. Each function registers one with its options and its callback; an
// Error thrown by a callback becomes one line on stderr and exit status 1 (main.cc).
#pragma once

namespace CLI {
class App;
}

namespace adder {

void add_run(CLI::App& app);
void add_chat(CLI::App& app);
void add_serve(CLI::App& app);
void add_score(CLI::App& app);
void add_logits(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_inspect(CLI::App& app);
void add_pull(CLI::App& app);
void add_convert(CLI::App& app);
void add_quantize(CLI::App& app);
void add_bench(CLI::App& app);
void add_roofline(CLI::App& app);
void add_tune(CLI::App& app);
void add_validate(CLI::App& app);
void add_compile(CLI::App& app);
void add_export(CLI::App& app);

// Subcommands of `adder bench`.
void add_bench_kernels(CLI::App& bench);
void add_bench_scan(CLI::App& bench);

}  // namespace adder
