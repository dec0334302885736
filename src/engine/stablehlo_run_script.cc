// run.py of an exported model.

#include "engine/stablehlo_export.h"

namespace adder {

const char* const kStablehloRunScript = R"PY(#!/usr/bin/env python3
"""Generates greedily with the programs of this folder, through jaxlib.

    python3 run.py 12092,619,1416 -n 20          # with generate.mlir
    python3 run.py 12092,619,1416 -n 20 --step   # with step.mlir, one token at a time

Prints the ids. Needs jax, jaxlib, numpy (seen with 0.4.30 and 0.10.2). JAX_PLATFORMS chooses where.
"""
import argparse
import json
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")  # or 64-bit integers are cut to 32 bits on their way
import jax
import ml_dtypes
import numpy as np
from jaxlib import xla_client

HERE = pathlib.Path(__file__).resolve().parent
MANIFEST = json.loads((HERE / "manifest.json").read_text())
DTYPES = {"i32": np.int32, "ui64": np.uint64, "f32": np.float32, "f16": np.float16,
          "bf16": ml_dtypes.bfloat16}
DEVICE = jax.local_devices()[0]


def read_weights():
    data = np.memmap(HERE / MANIFEST["weights"], np.uint8, "r")
    length = int.from_bytes(data[:8].tobytes(), "little")
    types = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
    for name, t in json.loads(data[8:8 + length].tobytes()).items():
        first, last = (8 + length + n for n in t["data_offsets"])
        yield name, data[first:last].view(types[t["dtype"]])


class Model:
    def __init__(self):
        self.programs = {}
        self.weights = dict(read_weights())
        self.on_device = {}
        self.states = {s["name"]: self.put(np.zeros(s["shape"], DTYPES[s["dtype"]]))
                       for s in MANIFEST["states"]}

    def put(self, array):
        return jax.device_put(array, DEVICE)

    def weight(self, name, shape):
        if name not in self.on_device:
            self.on_device[name] = self.put(self.weights.pop(name).reshape(shape))
        return self.on_device[name]

    def compiled(self, file):
        if file not in self.programs:
            text, options = (HERE / file).read_text(), xla_client.CompileOptions()
            client = DEVICE.client
            if hasattr(client, "compile_and_load"):
                devices = xla_client.DeviceList((DEVICE,))
                self.programs[file] = client.compile_and_load(text, devices, options)
            else:  # before jaxlib 0.6.1
                self.programs[file] = client.compile(text, options)
        return self.programs[file]

    def __call__(self, program, **inputs):
        """Runs a program, keeps the new states, and gives the other results by name."""
        arguments = []
        for a in program["arguments"]:
            if a["kind"] == "weight":
                arguments.append(self.weight(a["name"], a["shape"]))
            elif a["kind"] == "state":
                arguments.append(self.states[a["name"]])
            else:
                value = np.asarray(inputs[a["name"]], DTYPES[a["dtype"]])
                padded = np.full(a["shape"], -1 if a["name"] in ("slots", "stop") else 0, value.dtype)
                padded[tuple(slice(n) for n in value.shape)] = value
                arguments.append(self.put(padded))
        results = self.compiled(program["file"]).execute_sharded(arguments)
        outputs = {}
        for r, shards in zip(program["results"], results.disassemble_into_single_device_arrays()):
            (self.states if r["kind"] == "state" else outputs)[r["name"]] = shards[0]
        return {name: np.asarray(value) for name, value in outputs.items()}


def find(kind):
    return [p for p in MANIFEST["programs"] if p["program"] == kind]


def best(logits):
    return int(np.argmax(logits[0, :MANIFEST["vocab_size"]]))


def prefill(model, ids):
    """The id behind a prompt. Blocks as long as there is a program for, the rest padded."""
    programs = sorted(find("prefill"), key=lambda p: p["tokens"])
    while ids:
        program = next((p for p in programs if p["tokens"] >= len(ids)), programs[-1])
        block, ids = ids[:program["tokens"]], ids[program["tokens"]:]
        out = model(program, ids=block, valid=len(block), slots=[0], rows=[len(block) - 1])
    return best(out["logits"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", help="the prompt's ids, separated by commas")
    parser.add_argument("-n", type=int, default=20, help="how many ids to generate")
    parser.add_argument("--step", action="store_true", help="use step.mlir")
    options = parser.parse_args()
    model = Model()
    made = [prefill(model, [int(i) for i in options.ids.split(",")])]
    stop = MANIFEST["eos_ids"]
    step, generate = find("step")[0], find("generate")[0]
    rows = generate["batch"]
    while len(made) < options.n and made[-1] not in stop:
        if options.step:
            made.append(best(model(step, ids=made[-1:], slots=[0], rows=[0])["logits"]))
            continue
        left = options.n - len(made)
        out = model(generate, steps=min(left, 16), token=made[-1:], slot=[0] + [-1] * (rows - 1),
                    remaining=[left], index=[len(made)], stop=[stop] * rows,
                    rows=list(range(rows)))
        made += [int(i) for i in out["chosen"][:min(left, 16), 0] if i >= 0]
    print(",".join(str(i) for i in made if i not in stop))


if __name__ == "__main__":
    main()
)PY";

}  // namespace adder
