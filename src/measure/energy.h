// Energy of the processor packages from RAPL, Linux's powercap interface, where it can be read:
// often by root only, and in virtual machines not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adder {

class EnergyMeter {
 public:
  using Reading = std::vector<uint64_t>;  // microjoules of each package

  explicit EnergyMeter(const std::string& folder = "/sys/class/powercap");

  // Empty when nothing can be read.
  Reading read() const;
  // Nothing when one of the readings is empty. A counter that wrapped once in between is
  // understood.
  std::optional<double> joules(const Reading& from, const Reading& to) const;

 private:
  struct Package {
    std::string counter;  // path of energy_uj
    uint64_t range;       // the counter starts again from 0 after this
  };
  std::vector<Package> packages_;
};

}  // namespace adder
