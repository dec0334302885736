// The one place where it is decided where an operation runs: on the host, or on the device in whose
// memory its operands lie.
#pragma once

#include "ops/device_call.h"
#include "ops/operand_list.h"

namespace adder::ops {

// The device forms of operations: false, with nothing written, for what a device cannot do.
template <typename Args>
bool on_device(DeviceCall& /*call*/, const Args& /*args*/) {
  return false;
}
bool on_device(DeviceCall& call, const SelectiveScanFnArgs& args);
bool on_device(DeviceCall& call, const SelectiveStateUpdateArgs& args);
bool on_device(DeviceCall& call, const MambaChunkScanArgs& args);
bool on_device(DeviceCall& call, const CausalConv1dFnArgs& args);
bool on_device(DeviceCall& call, const CausalConv1dUpdateArgs& args);
bool on_device(DeviceCall& call, const CausalConv1dVarlenStatesArgs& args);
bool on_device(DeviceCall& call, const NormArgs& args);

// Indices become copies before anything else, so that what is checked is what is used, whatever
// other threads write meanwhile; and so does what shares memory with what is updated.
void detach(const OperandList& list, Detached* copies);

// op: the name that errors give. host(args) is the operation on host memory, whose results it
// gives in any case: a device without a form of its own has it done there.
template <typename Args, typename Host>
void run(const Place& place, std::string_view op, Args& args, const Host& host) {
  OperandList list = operands_of(args);
  if (place.device == nullptr) {
    Detached copies;
    detach(list, &copies);
    return host(args);
  }
  DeviceCall call(place, op);
  call.detach(list);
  if (!on_device(call, args)) call.through_host(list, [&] { host(args); });
  call.finish();
}

}  // namespace adder::ops
