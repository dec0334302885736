#include "io/gguf_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "io/printable.h"

namespace adder {
namespace {

constexpr size_t kMaxText = 256;

// The shortest text that reads back to the same number of this type.
template <typename Float>
std::string float_text(Float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string value_text(const GgufMetadata& metadata, std::string_view key, const GgufValue& value) {
  switch (value.type) {
    case GgufType::kString:
      return nlohmann::json(*metadata.get_string(key))
          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    case GgufType::kBool:
      return *metadata.get_bool(key) ? "true" : "false";
    case GgufType::kF32:
      return float_text(static_cast<float>(*metadata.get_number(key)));
    case GgufType::kF64:
      return float_text(*metadata.get_number(key));
    default:
      return fmt::format("{}", *metadata.get_int(key));
  }
}

}  // namespace

std::string gguf_config_json(const GgufMetadata& metadata) {
  std::string json = "{";
  for (const auto& [key, value] : metadata.values()) {
    if (value.is_array || !is_sane_name(key)) continue;
    if (value.type == GgufType::kString && value.data.size() > kMaxText) continue;
    json += json.size() > 1 ? ",\n" : "\n";
    json += nlohmann::json(key).dump() + ": " + value_text(metadata, key, value);
  }
  return json + "}";
}

void shape_as_torch(StoredTensor& tensor, bool mamba2) {
  const std::string_view name = tensor.name;
  if (name.ends_with(".ssm_conv1d.weight") && tensor.shape.size() == 2) {
    tensor.shape.insert(tensor.shape.begin() + 1, 1);
  } else if (mamba2 && (name.ends_with(".ssm_a") || name.ends_with(".ssm_d") ||
                        name.ends_with(".ssm_norm.weight"))) {
    tensor.shape = {tensor.size()};
  } else {
    return;
  }
  tensor.stride = contiguous_strides(tensor.shape);
}

}  // namespace adder
