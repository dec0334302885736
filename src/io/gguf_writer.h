// Writes GGUF version 3 (io/gguf.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "io/gguf.h"
#include "io/tensor_writer.h"

namespace adder {

// Metadata and declarations come first, in any order; the first write() puts the header out. Keys
// stand in the file in the order of the calls. A key that is there already, or that comes after the
// first write, throws Error(kInternal).
//
//   GgufWriter writer([&](auto bytes) { file.write(bytes); });
//   writer.add_string("general.architecture", "mamba");
//   writer.declare("blk.0.ssm_in.weight", DType::kQ8_0, {2 * d_inner, d_model});
//   for (rows) writer.write(quantized_row);
//   writer.finish();
class GgufWriter final : public TensorWriter {
 public:
  explicit GgufWriter(ByteSink sink) : TensorWriter(std::move(sink), kGgufAlignment) {}

  void add_u32(std::string_view key, uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string_view> values);
  void add_floats(std::string_view key, std::span<const float> values);  // F32
  void add_ints(std::string_view key, std::span<const int32_t> values);  // I32
  void add(std::string_view key, const GgufValue& value);                // of another file
  bool has(std::string_view key) const { return keys_.contains(key); }

 private:
  std::string header() const override;
  void add_key(std::string_view key);
  void add_type(GgufType type);

  std::string metadata_;
  std::set<std::string, std::less<>> keys_;
};

}  // namespace adder
