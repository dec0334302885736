// The demo model that is compiled into the program (models/demo).
#pragma once

#include "io/checkpoint.h"

namespace adder {

Checkpoint open_demo_model();

}  // namespace adder
