#include "io/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace adder {

std::string SafetensorsWriter::header() const {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for (const Declared& t : declared()) {
    if (is_quantized(t.dtype)) {
      fail(ErrorCode::kInternal, "safetensors writer: '{}' is {}", t.name, dtype_name(t.dtype));
    }
    tensors[t.name] = {{"dtype", dtype_name(t.dtype)},
                       {"shape", t.shape},
                       {"data_offsets", {t.offset, t.offset + t.bytes}}};
  }
  std::string json = tensors.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string text;
  for (uint64_t i = 0, length = json.size(); i < 8; ++i)
    text += static_cast<char>(length >> (8 * i) & 0xff);
  return text + json;
}

}  // namespace adder
