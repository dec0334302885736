#!/usr/bin/env python3
"""Adder's Python operations and engine beside what runs on a CPU without them, in one run.

    PYTHONPATH=build/ci/python python3 bench/python_ops.py                  # everything, some minutes
    PYTHONPATH=build/ci/python python3 bench/python_ops.py --only scan,call --rounds 2
    ... --mamba CHECKOUT                     # also mamba-ssm's own reference functions

Sides of a comparison take turns, with as many threads each; a round in advance is dropped, and the
median of the others is printed. Needs PyTorch, and for their sides mambapy, transformers and einops
(python/tests/requirements.txt); what cannot be imported is left out, and said so.
"""

import argparse
import copy
import importlib
import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy
import torch

import adder
from adder import compat, ops

sys.dont_write_bytecode = True
SCANS = [(1, 1536, 2048, 16), (1, 5120, 2048, 16)]  # batch, dim, seqlen, dstate: mamba-130m and -2.8b
SSDS = {"mamba2-130m": (1, 2048, 24, 64, 128), "mamba2-2.7b": (1, 2048, 80, 64, 128)}
CHUNK_SIZE = 256  # batch, seqlen, nheads, headdim, dstate above
PROMPT, GENERATED = 512, 32


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: left out ({error})", file=sys.stderr)
        return None


class Table:
    """Rows of (case, side, median seconds); the first side of a case is Adder."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.rows = []

    def measure(self, case, sides, per=1):
        """sides: name -> function. per: how many units of work (calls, tokens) one call does."""
        times = {name: [] for name in sides}
        for _ in range(self.rounds + 1):
            for name, function in sides.items():
                start = time.perf_counter()
                function()
                times[name].append((time.perf_counter() - start) / per)
        for name in sides:
            self.rows.append((case, name, statistics.median(times[name][1:])))

    def show(self):
        print("| case | side | median | times Adder |\n|---|---|---:|---:|")
        for case, rows in itertools.groupby(self.rows, key=lambda row: row[0]):
            rows = list(rows)
            for _, name, seconds in rows:
                print(f"| {case} | {name} | {readable(seconds)} | {seconds / rows[0][2]:.1f} |")


def readable(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


def plain_scan(u, delta, A, B, C, D):
    """One PyTorch expression per step, the way mamba-ssm's reference does it."""
    decay = torch.exp(delta.unsqueeze(-1) * A[None, :, None])
    inflow = (delta * u).unsqueeze(-1) * B.transpose(1, 2).unsqueeze(1)
    state = torch.zeros_like(decay[:, :, 0])
    outputs = []
    for t in range(u.shape[2]):
        state = decay[:, :, t] * state + inflow[:, :, t]
        outputs.append(torch.matmul(state, C[:, :, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, dim=2) + u * D[:, None]


def bench_scan(table, peers):
    for batch, dim, seqlen, dstate in SCANS:
        u = torch.randn(batch, dim, seqlen)
        delta = 0.1 * torch.rand(batch, dim, seqlen)
        A = -torch.rand(dim, dstate) - 0.5
        B, C = torch.randn(batch, dstate, seqlen), torch.randn(batch, dstate, seqlen)
        D = torch.randn(dim)
        expected = plain_scan(u, delta, A, B, C, D)
        sides = {
            "Adder": lambda: ops.selective_scan_fn(u, delta, A, B, C, D),
            "PyTorch, step by step": lambda: plain_scan(u, delta, A, B, C, D),
        }
        if peers.mamba:
            sides["mamba-ssm selective_scan_ref"] = lambda: peers.mamba.selective_scan_ref(u, delta, A, B, C, D)
        if peers.mambapy:
            by_time = [each.transpose(1, 2).contiguous() for each in (u, delta, B, C)]

            def mambapy():
                x, dt, b, c = by_time
                states = peers.mambapy.pscan(torch.exp(dt.unsqueeze(-1) * A), (dt * x).unsqueeze(-1) * b.unsqueeze(2))
                return (states @ c.unsqueeze(-1)).squeeze(3) + D * x

            sides["mambapy pscan"] = mambapy
        for name, side in sides.items():
            check(name, side().transpose(1, 2) if name == "mambapy pscan" else side(), expected)
        table.measure(f"selective_scan_fn ({batch}, {dim}, {seqlen}, {dstate})", sides)


def check(name, got, expected):
    """No side may be fast at something else. 2048 steps of float32 sums in other orders: 1e-3 of the largest."""
    if not (got - expected).abs().max() <= 1e-3 * expected.abs().max():
        sys.exit(f"{name}: its result is not that of the others")


def plain_ssd(x, dt, A, B, C):
    decay, inflow = torch.exp(dt * A), dt.unsqueeze(-1) * x
    state = torch.zeros(*x[:, 0].shape, B.shape[-1])
    outputs = []
    for t in range(x.shape[1]):
        state = decay[:, t, :, None, None] * state + inflow[:, t].unsqueeze(-1) * B[:, t].unsqueeze(-2)
        outputs.append(torch.matmul(state, C[:, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, dim=1)


def bench_ssd(table, peers):
    for model, (batch, seqlen, nheads, headdim, dstate) in SSDS.items():
        x = torch.randn(batch, seqlen, nheads, headdim)
        dt = 0.1 * torch.rand(batch, seqlen, nheads)
        A = -torch.rand(nheads) - 0.5
        B, C = torch.randn(batch, seqlen, 1, dstate), torch.randn(batch, seqlen, 1, dstate)
        sides = {
            "Adder": lambda: ops.mamba_chunk_scan_combined(x, dt, A, B, C, CHUNK_SIZE),
            "PyTorch, step by step": lambda: plain_ssd(x, dt, A, B, C),
        }
        if peers.mamba:

            def minimal():
                heads = [each.expand(-1, -1, nheads, -1) for each in (B, C)]
                # Its memory grows with the block; 64 is its own test's.
                return peers.ssd_minimal.ssd_minimal_discrete(x * dt.unsqueeze(-1), A * dt, *heads, 64)[0]

            sides["mamba-ssm ssd_minimal_discrete"] = minimal
        expected = plain_ssd(x, dt, A, B, C)
        for name, side in sides.items():
            check(name, side(), expected)
        table.measure(f"mamba_chunk_scan_combined, {model}", sides)


def bench_call(table, _):
    """What a call costs when there is next to nothing to compute."""
    calls = 2000
    arrays = [numpy.ones(shape, numpy.float32) for shape in ((1, 4, 4), (1, 4), (1, 4), (4, 4), (1, 4), (1, 4))]
    tensors = [torch.from_numpy(each) for each in arrays]
    conv = [numpy.ones(shape, numpy.float32) for shape in ((1, 4), (1, 4, 4), (4, 4))]
    for case, function, arguments in (
        ("selective_state_update (1, 4, 4), NumPy", ops.selective_state_update, arrays),
        ("selective_state_update (1, 4, 4), PyTorch", ops.selective_state_update, tensors),
        ("causal_conv1d_update (1, 4), NumPy", ops.causal_conv1d_update, conv),
        ("causal_conv1d_update (1, 4), PyTorch", ops.causal_conv1d_update, [torch.from_numpy(e) for e in conv]),
    ):
        table.measure(case, {"Adder": lambda: [function(*arguments) for _ in range(calls)]}, per=calls)


def saved_and_loaded(model):
    """The engine with the weights of a transformers model, in their dtype."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return adder.load(folder, threads=torch.get_num_threads())


def prefill_of(model, ids):
    return lambda: model(ids, use_cache=True)


def decode_of(model, ids):
    """GENERATED steps behind the first of ids."""
    start = model(ids[:, :8], use_cache=True)

    def run():
        cache, one = start.cache_params, torch.tensor([[1]])
        for t in range(GENERATED):
            model(one, cache_params=cache, use_cache=True, cache_position=torch.tensor([PROMPT + t]))

    return run


def engine_decode_of(engine, prompt):
    state = engine.feed(engine.state(), prompt[:8])
    options = {"max_tokens": GENERATED, "temperature": 0, "ignore_eos": True}
    return lambda: engine.generate([1], state=state, **options)


def bench_model(table, peers):
    transformers = peers.transformers
    if transformers is None:
        return
    torch.manual_seed(0)
    model = transformers.MambaForCausalLM(transformers.MambaConfig(num_hidden_layers=24)).eval()
    ids = torch.randint(0, model.config.vocab_size, (1, PROMPT))
    prompt = ids[0].tolist()
    engine = saved_and_loaded(model)

    def on_shims(function):
        def run():
            with compat.install():
                function()

        return run

    def logits(engine):
        return torch.from_numpy(engine.logits(prompt, last=1))[:, : model.config.vocab_size]

    check("Adder's engine", logits(engine), model(ids).logits[0, -1:])
    prefill, decode = prefill_of(model, ids), decode_of(model, ids)
    table.measure(
        f"mamba-130m shape, prefill of {PROMPT}, per token",
        {
            "Adder's engine": lambda: engine.logits(prompt, last=1),
            "transformers": prefill,
            "transformers on adder.compat": on_shims(prefill),
        },
        per=PROMPT,
    )
    # The same model with weights rounded to bfloat16: as it is, and widened again for transformers.
    half = copy.deepcopy(model).to(torch.bfloat16)
    engine_half = saved_and_loaded(half)
    check("Adder's engine, bfloat16", logits(engine_half), copy.deepcopy(half).float()(ids).logits[0, -1:])
    table.measure(
        "mamba-130m shape, decode, per token",
        {
            "Adder's engine, bfloat16 weights": engine_decode_of(engine_half, prompt),
            "Adder's engine": engine_decode_of(engine, prompt),
            "transformers": decode,
            "transformers on adder.compat": on_shims(decode),
            "transformers, bfloat16": decode_of(half, ids),
        },
        per=GENERATED,
    )


class Peers:
    def __init__(self, arguments):
        self.mambapy = optional("mambapy.pscan")
        self.transformers = optional("transformers")
        self.mamba = self.ssd_minimal = None
        if self.transformers and not hasattr(torch, "_dynamo"):
            # transformers 4.48 marks its cache for the compiler of PyTorch 2.
            torch._dynamo = type("NoCompiler", (), {"mark_static_address": staticmethod(lambda tensor: None)})
        if arguments.mamba:
            sys.path[:0] = [str(arguments.mamba), str(pathlib.Path(__file__).resolve().parents[1] / "tools")]
            importlib.import_module("peer_tests.cpu_as_cuda").stub_triton()
            with compat.install(transformers=False):
                self.mamba = importlib.import_module("mamba_ssm.ops.selective_scan_interface")
                self.mamba.selective_scan_ref  # looked up while the shims are installed
                self.ssd_minimal = importlib.import_module("mamba_ssm.modules.ssd_minimal")


SECTIONS = {"scan": bench_scan, "ssd": bench_ssd, "call": bench_call, "model": bench_model}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5, help="that count, after one that does not")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--mamba", type=pathlib.Path, help="checkout of state-spaces/mamba")
    arguments = parser.parse_args()
    sections = arguments.only.split(",")
    if unknown := [name for name in sections if name not in SECTIONS]:
        parser.error(f"--only: expected some of {', '.join(SECTIONS)}, got {unknown[0]!r}")
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error("--rounds and --threads: expected at least 1")
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    ops.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    table, peers = Table(arguments.rounds), Peers(arguments)
    for name in sections:
        SECTIONS[name](table, peers)
    print(f"torch {torch.__version__}, {arguments.threads} threads, median of {arguments.rounds}\n")
    table.show()


if __name__ == "__main__":
    main()
