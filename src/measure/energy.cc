#include "measure/energy.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace adder {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    // "intel-rapl:0" is a package (AMD's too); "intel-rapl:0:1" a part of one.
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("intel-rapl:") || std::count(name.begin(), name.end(), ':') != 1) {
      continue;
    }
    const fs::path counter = entry.path() / "energy_uj";
    const auto range = read_number(entry.path() / "max_energy_range_uj");
    if (range && read_number(counter)) packages_.push_back({counter.string(), *range});
  }
}

EnergyMeter::Reading EnergyMeter::read() const {
  Reading reading;
  for (const Package& package : packages_) {
    const auto value = read_number(package.counter);
    if (!value) return {};
    reading.push_back(*value);
  }
  return reading;
}

std::optional<double> EnergyMeter::joules(const Reading& from, const Reading& to) const {
  if (from.empty() || to.empty()) return std::nullopt;
  double sum = 0;
  for (size_t i = 0; i < packages_.size(); ++i) {
    const uint64_t used = to[i] >= from[i] ? to[i] - from[i] : packages_[i].range - from[i] + to[i];
    sum += static_cast<double>(used) * 1e-6;
  }
  return sum;
}

}  // namespace adder
