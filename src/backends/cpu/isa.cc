#include "backends/cpu/isa.h"

#include <fmt/ranges.h>

#include <bit>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "hwy/highway.h"

namespace adder {
namespace {

// Position in the tables that HWY_EXPORT makes: 0 is Highway's own first-call hook, then the
// dynamic targets from the best one down, the portable fallback last. A build with a single target
// has a table of one.
size_t table_index(int64_t target) {
  if (std::has_single_bit(static_cast<uint64_t>(HWY_TARGETS))) return 0;
  const auto shifted = static_cast<uint64_t>(HWY_CHOSEN_TARGET_SHIFT(target));
  if (shifted == 0) return HWY_MAX_DYNAMIC_TARGETS + 1;
  return static_cast<size_t>(std::countr_zero(shifted));
}

}  // namespace

std::vector<Isa> runnable_isas() {
  std::vector<Isa> isas;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    isas.push_back({hwy::TargetName(target), table_index(target)});
  }
  return isas;
}

Isa choose_isa(std::string_view name) {
  const std::vector<Isa> isas = runnable_isas();
  std::vector<std::string_view> names;
  for (const Isa& isa : isas) {
    if (name.empty() || isa.name == name) return isa;
    names.push_back(isa.name);
  }
  bad_input("cpu: expected an instruction set of this build and machine ({}), got '{}'",
            fmt::join(names, ", "), name);
}

Isa isa_from_environment() {
  const char* forced = std::getenv("ADDER_FORCE_ISA");
  return choose_isa(forced != nullptr ? forced : "");
}

}  // namespace adder
