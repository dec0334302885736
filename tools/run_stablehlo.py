#!/usr/bin/env python3
"""Runs StableHLO text through XLA's CPU client, as Python's jaxlib has it.

The text is what src/backends/xla/stablehlo_text.cc writes. Two uses:

    ADDER_XLA_DUMP=/tmp/programs build/ci/tests/test_xla
    python3 tools/run_stablehlo.py --check /tmp/programs

compiles every program that the tests ran and compares XLA's results with the interpreter's, which
the tests hold against values worked out by hand. Every result must be within the tolerance that its
test states; NaN must meet NaN. Exits with 1 where one does not, or is refused.

    python3 tools/run_stablehlo.py program.mlir x.npy f32:2x3:weights.raw --out /tmp/results

runs one program. Inputs are .npy files, or raw little-endian bytes as ELEMENT:SHAPE:FILE (a scalar
is f32::FILE). Results are printed, and written as result0.npy, ... with --out.

Needs: python3 -m venv V && V/bin/pip install jaxlib jax numpy  (seen with 0.6.0 and 0.10.2)
"""
import argparse
import json
import os
import pathlib
import sys
import traceback

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")  # or 64-bit integers are cut to 32 bits on their way
import jax
import ml_dtypes
import numpy as np
from jaxlib import xla_client

DTYPES = {
    "i1": np.bool_, "i8": np.int8, "i32": np.int32, "ui32": np.uint32, "ui64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
}


class Program:
    """A compiled text."""

    def __init__(self, text):
        self.device = jax.local_devices(backend="cpu")[0]
        client, options = self.device.client, xla_client.CompileOptions()
        if hasattr(client, "compile_and_load"):
            devices = xla_client.DeviceList((self.device,))
            self.executable = client.compile_and_load(text, devices, options)
        else:  # before jaxlib 0.6.1
            self.executable = client.compile(text, options)

    def __call__(self, inputs):
        arrays = [jax.device_put(x, self.device) for x in inputs]
        results = self.executable.execute_sharded(arrays)
        return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]


def read_raw(path, element, shape):
    return np.frombuffer(pathlib.Path(path).read_bytes(), DTYPES[element]).reshape(shape)


def read_input(argument):
    if argument.endswith(".npy"):
        return np.load(argument)
    element, shape, path = argument.split(":", 2)
    return read_raw(path, element, [int(n) for n in shape.split("x") if n])


def difference(got, want, relative, absolute):
    """What is wrong with a result, or nothing."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"expected {want.dtype}{list(want.shape)}, got {got.dtype}{list(got.shape)}"
    if want.size == 0:
        return ""
    if want.dtype.kind in "biu":
        bad = got != want
    else:
        got, want = got.astype(np.float64), want.astype(np.float64)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        with np.errstate(invalid="ignore"):
            near = np.abs(got - want) <= absolute + relative * np.abs(want)
        bad = ~(same | (near & np.isfinite(got) & np.isfinite(want)))
    if not bad.any():
        return ""
    at = np.unravel_index(np.argmax(bad), bad.shape)
    return f"{bad.sum()} of {bad.size} differ, first at {[int(i) for i in at]}: " \
           f"expected {want[at]!r}, got {got[at]!r}"


def check_case(folder):
    case = json.loads((folder / "case.json").read_text())

    def arrays(entries):
        return [read_raw(folder / e["file"], e["element"], e["shape"]) for e in entries]

    got = Program((folder / "program.mlir").read_text())(arrays(case["inputs"]))
    want = arrays(case["results"])
    if len(got) != len(want):
        return [f"expected {len(want)} results, got {len(got)}"]
    problems = []
    for i, (x, y) in enumerate(zip(got, want)):
        problem = difference(x, y, case["relative"], case["absolute"])
        if problem:
            problems.append(f"result {i}: {problem}")
    return problems


def check(root):
    folders = sorted(path.parent for path in root.glob("*/case.json"))
    failed, opcodes = 0, set()
    for folder in folders:
        for word in (folder / "program.mlir").read_text().split('"'):
            if word.startswith("stablehlo."):
                opcodes.add(word)
        try:
            problems = check_case(folder)
        except Exception:  # XLA's refusals have many types
            problems = [traceback.format_exc(limit=0).strip()]
        failed += bool(problems)
        for problem in problems:
            print(f"{folder.name}: {problem}")
    print(f"{len(folders)} programs, {failed} failed; {len(opcodes)} operations: "
          + " ".join(sorted(name.removeprefix("stablehlo.") for name in opcodes)))
    return 1 if failed or not folders else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("program", nargs="?")
    parser.add_argument("inputs", nargs="*")
    options = parser.parse_args()
    if options.check:
        return check(options.check)
    if not options.program:
        parser.error("a program, or --check FOLDER")
    results = Program(pathlib.Path(options.program).read_text())(
        [read_input(argument) for argument in options.inputs])
    for i, result in enumerate(results):
        print(f"result {i}: {result.dtype}{list(result.shape)}\n{result}")
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            np.save(options.out / f"result{i}.npy", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
