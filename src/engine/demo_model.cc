#include "engine/demo_model.h"

#include <span>
#include <string_view>

// The assembler copies the files into the read-only data of the program: no generated source, and
// the weights are mapped with the executable like those of any other model. ADDER_DEMO_DIR is set
// by the build, which also makes this file depend on both.
asm(R"(
  .section .rodata
  .balign 64
  .global adder_demo_weights, adder_demo_weights_end, adder_demo_config, adder_demo_config_end
adder_demo_weights:
  .incbin ")" ADDER_DEMO_DIR R"(/model.safetensors"
adder_demo_weights_end:
adder_demo_config:
  .incbin ")" ADDER_DEMO_DIR R"(/config.json"
adder_demo_config_end:
  .byte 0
  .previous
)");

extern "C" {
extern const std::byte adder_demo_weights[], adder_demo_weights_end[];
extern const char adder_demo_config[], adder_demo_config_end[];
}

namespace adder {

Checkpoint open_demo_model() {
  return Checkpoint::from_memory(std::span(adder_demo_weights, adder_demo_weights_end),
                                 std::string_view(adder_demo_config, adder_demo_config_end),
                                 "the demo model");
}

}  // namespace adder
