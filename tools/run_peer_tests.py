#!/usr/bin/env python3
"""Runs the forward halves of mamba-ssm's and causal-conv1d's own tests on Adder's operations.

    git clone https://github.com/state-spaces/mamba
    git clone https://github.com/Dao-AILab/causal-conv1d
    PYTHONPATH=build/ci/python tools/run_peer_tests.py --mamba mamba --causal-conv1d causal-conv1d

Their test files are read from the checkouts and run as they are, with adder.compat installed, the
device "cuda" taken for the CPU, and each test stopped where it calls backward(). "passed" means that
a test ran to its end, "forward passed" that everything it compared before the backward pass agreed.
"not in torch" is an operation that the test itself needs and this PyTorch has not on the CPU, such as
F.conv1d for float16. tools/peer_tests/test_*.py are tests of ours that compare with mamba-ssm's reference
functions and modules where its tests reach for single Triton kernels.

Needs PyTorch, pytest and einops; Mamba-2's modules need transformers too. Exit status 1 if any failed.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import pathlib
import sys

import pytest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))

HERE = pathlib.Path(__file__).parent
FILES_OF_MAMBA = (
    "tests/ops/test_selective_scan.py",
    "tests/ops/triton/test_selective_state_update.py",
    "tests/ops/triton/test_layernorm_gated.py",
    "tests/test_generation.py",
)
FILES_OF_CAUSAL_CONV1D = ("tests/test_causal_conv1d.py",)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mamba", type=pathlib.Path, help="checkout of state-spaces/mamba")
    parser.add_argument("--causal-conv1d", type=pathlib.Path, help="checkout of Dao-AILab/causal-conv1d")
    parser.add_argument("--limit", type=int, default=0, help="cases per test function (default: all)")
    parser.add_argument("-k", default="", help="as pytest's -k")
    parser.add_argument("--threads", type=int, help="of PyTorch and of Adder")
    parser.add_argument("--json", type=pathlib.Path, help="write every case there")
    parser.add_argument("--verbose", action="store_true", help="show pytest's own report")
    arguments = parser.parse_args()
    if not arguments.mamba and not arguments.causal_conv1d:
        parser.error("expected --mamba, --causal-conv1d or both, got neither")
    return arguments


def test_files(arguments):
    files = []
    for checkout, names in (
        (arguments.mamba, FILES_OF_MAMBA),
        (arguments.causal_conv1d, FILES_OF_CAUSAL_CONV1D),
    ):
        if checkout is None:
            continue
        found = [checkout / name for name in names if (checkout / name).is_file()]
        if not found:
            sys.exit(f"{checkout}: expected a checkout with {names[0]}, found no such file")
        sys.path.insert(0, str(checkout.resolve()))
        files += found
    if arguments.mamba:
        files += sorted((HERE / "peer_tests").glob("test_*.py"))
    return files


def print_table(plugin, outcomes):
    rows = [("test", "cases", "run", *outcomes)]
    total = dict.fromkeys(("cases", "run", *outcomes), 0)
    for test, counts in plugin.counts().items():
        if not counts:
            continue  # deselected by -k
        file, _, name = test.partition("::")
        row = {"cases": plugin.available[test], "run": sum(counts.values()), **{o: counts[o] for o in outcomes}}
        rows.append((f"{os.path.basename(file)} {name}", *row.values()))
        total = {key: total[key] + row[key] for key in total}
    rows.append(("all", *total.values()))
    print("| " + " | ".join(rows[0]) + " |")
    print("|---|" + "---:|" * (len(rows[0]) - 1))
    for row in rows[1:]:
        print("| " + " | ".join(str(each) for each in row) + " |")


def print_reasons(results):
    """Each different reason once, with the first case that met it."""
    seen = set()
    for result in results:
        key = (result["test"], result["outcome"], result["reason"])
        if result["reason"] and key not in seen:
            seen.add(key)
            print(f"{result['outcome']}: {result['case']}\n    {result['reason']}")


def main():
    arguments = parse_arguments()
    files = test_files(arguments)

    from peer_tests import cpu_as_cuda, plugin
    import torch

    import adder.compat
    import adder.ops

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
        adder.ops.set_num_threads(arguments.threads)
    cpu_as_cuda.stub_triton()
    cpu_as_cuda.map_cuda_to_cpu()
    halves = plugin.ForwardHalves(arguments.limit)
    # Not the checkouts' own configuration: it may ask for plugins.
    options = ["-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull, "--rootdir", os.sep]
    options += ["--continue-on-collection-errors"]
    options += ["-q", "--tb=short"]
    if arguments.k:
        options += ["-k", arguments.k]
    with adder.compat.install():
        if arguments.mamba:
            cpu_as_cuda.ignore_cuda_graphs(importlib.import_module("mamba_ssm.utils.generation"))
        with contextlib.redirect_stdout(sys.stdout if arguments.verbose else io.StringIO()):
            status = pytest.main([*options, *map(str, files)], plugins=[halves])
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, Adder {adder.__version__}\n")
    print_table(halves, plugin.OUTCOMES)
    print_reasons(halves.results)
    if arguments.json:
        arguments.json.write_text(json.dumps({"torch": torch.__version__, "cases": halves.results}, indent=1))
    failed = any(result["outcome"] == "failed" for result in halves.results)
    # pytest counts a case that is not in torch as failed; anything else than that is our failure too.
    return 1 if failed or not halves.results or status not in (0, 1) else 0


if __name__ == "__main__":
    sys.exit(main())
