#!/usr/bin/env python3
"""Adder and llama.cpp on the same files and work, in turn, on the same cores; one table of ratios.

    bench/peers/run.py --setup              # virtual environment with llama.cpp, built natively
    bench/peers/run.py small                # the 130m models
    bench/peers/run.py full                 # up to 2.8b
    bench/peers/run.py jax                  # mamba2-jax instead of llama.cpp
    bench/peers/run.py --check              # the logits and greedy tokens of Adder and llama.cpp
    bench/peers/run.py --report

Every measurement is a process of its own: load, one round to warm up, one that counts. Rounds go
Adder, llama.cpp, Adder, ...; results are appended to build/peers/results.jsonl, so that an interrupted
run goes on where it stopped. docs/benchmarking.md says what is measured.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

import compare
import report
import weights

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "peers"
REQUIREMENTS = ["llama-cpp-python==0.3.36", "numpy==2.4.6"]
OPTIONAL = ["mamba2-jax==1.1.2"]

# (model, weights, tokens of the prompt, tokens to generate, sequences that decode together)
SMALL = ([("mamba-130m", kind, 512, 64, 1) for kind in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k")]
         + [("mamba2-130m", kind, 512, 64, 1) for kind in ("f32", "f16", "q8_0", "q4_0")]
         + [("mamba-130m", "q8_0", 32, 32, 16)])
FULL = (SMALL
        + [("mamba-370m", kind, 512, 64, 1) for kind in ("q8_0", "q4_0")]
        + [("mamba-1.4b", kind, 512, 32, 1) for kind in ("q8_0", "q4_0")]
        + [("mamba-1.4b", "q8_0", 32, 16, 16)]
        + [("mamba-2.8b", kind, 256, 32, 1) for kind in ("f16", "q8_0", "q4_0")]
        + [("mamba2-1.3b", "q8_0", 512, 32, 1), ("mamba2-2.7b", "q8_0", 256, 32, 1)])
JAX = [("mamba2-130m", "f32", 512, 64, 1)]
SUITES = {"small": SMALL, "full": FULL, "jax": JAX}


def setup(venv):
    """Minutes: llama.cpp is compiled for this machine, or as CMAKE_ARGS says."""
    python = venv / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    environment = {"CMAKE_ARGS": "-DGGML_NATIVE=ON", **os.environ}
    install = [str(python), "-m", "pip", "install"]
    subprocess.run([*install, "--no-binary", "llama-cpp-python", *REQUIREMENTS], check=True, env=environment)
    if subprocess.run([*install, *OPTIONAL]).returncode != 0:
        print(f"{', '.join(OPTIONAL)}: cannot be installed here; the suite jax will not run", file=sys.stderr)


def pinned(args, command):
    """The command on the cores of this run, and what it printed as JSON."""
    return json.loads(weights.output(["taskset", "-c", ",".join(map(str, args.cores)), *command]))


def run_adder(args, file, prompt, gen, sequences):
    r = pinned(args, [args.adder, "bench", file, "--json", "--prompt", prompt, "--gen", gen, "--batch", sequences,
                      "--temp", 0, "--repeat", 1, "--threads", len(args.cores)])
    decode, = r["decode"]
    return {"prefill_tok_s": r["prefill"]["tok_s"]["median"], "decode_tok_s": decode["tok_s"]["median"],
            "load_s": r["load_s"], "peak_rss_bytes": r["peak_rss_bytes"], "decode_of_read": decode["of_read"],
            "read_gb_s": r["limits"]["memory read"] * 1e-9, "device": r["device"], "cpu": r["cpu"]}


def run_llama(args, file, prompt, gen, sequences):
    r = pinned(args, [args.python, HERE / "llama_peer.py", file, "--cores", ",".join(map(str, args.cores)),
                      "--prompt", prompt, "--gen", gen, "--sequences", sequences])
    return {"prefill_tok_s": prompt / r["prefill_s"], "decode_tok_s": gen * sequences / r["decode_s"],
            "load_s": r["load_s"], "peak_rss_bytes": r["peak_rss_bytes"]}


def run_jax(args, file, prompt, gen, sequences):
    model = file.name.split(".")[0]  # a shape: it has weights of its own
    r = pinned(args, [args.python, HERE / "jax_peer.py", model, "--prompt", prompt, "--gen", gen])
    return {"prefill_tok_s": prompt / r["prefill_s"], "decode_tok_s": gen * sequences / r["decode_s"],
            "load_s": r["load_s"], "peak_rss_bytes": r["peak_rss_bytes"]}


def build_id(args, peer):
    """Results are compared only within one program, one version of the peer and one set of cores."""
    digest = hashlib.sha256(args.adder.read_bytes()).hexdigest()[:12]
    package = "mamba2-jax" if peer == "mamba2-jax" else "llama-cpp-python"
    query = f"import importlib.metadata as m; print(m.version('{package}'))"
    version = weights.output([args.python, "-c", query]).strip()
    return f"adder {digest}, {package} {version}, cores {','.join(map(str, args.cores))}"


def measure(args, cases, peer):
    build = build_id(args, peer)
    sides = (("adder", run_adder), (peer, run_jax if peer == "mamba2-jax" else run_llama))
    done = {(r["case"], r["round"], r["side"]) for r in report.read(args.results) if r["build"] == build}
    BUILD.mkdir(parents=True, exist_ok=True)
    for case in cases:
        model, kind, *work = case
        todo = [(n, name, side) for n in range(args.rounds) for name, side in sides if (case, n, name) not in done]
        if not todo:
            continue
        file = weights.model_file(args.adder, args.python, args.models, model, kind)
        for n, name, side in todo:
            print(f"{report.title(case)}: {name}, round {n + 1} of {args.rounds}", file=sys.stderr)
            result = {"case": case, "round": n, "side": name, "build": build,
                      "time": time.strftime("%Y-%m-%d %H:%M:%S"), **side(args, file, *work)}
            with open(args.results, "a") as out:
                out.write(json.dumps(result) + "\n")


def numbers(text):
    return sorted({int(part) for part in text.split(",")})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="?", choices=sorted(SUITES))
    parser.add_argument("--setup", action="store_true", help="install the peer first")
    parser.add_argument("--report", action="store_true", help="only print the table of what was measured")
    parser.add_argument("--check", action="store_true", help="only compare logits and greedy tokens of both")
    parser.add_argument("--only", metavar="TEXT", help="of the suite, the cases whose MODEL/WEIGHTS contains TEXT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=numbers, default=sorted(os.sched_getaffinity(0)), help="e.g. 0,1; default all")
    parser.add_argument("--realtime", type=int, metavar="PRIORITY", help="run everything under SCHED_FIFO: for a machine that is not idle")
    parser.add_argument("--adder", type=pathlib.Path, default=ROOT / "build/release/apps/adder")
    parser.add_argument("--venv", type=pathlib.Path, default=BUILD / "venv", help="environment that has the peer")
    parser.add_argument("--models", type=pathlib.Path, default=BUILD / "models")
    parser.add_argument("--results", type=pathlib.Path, default=BUILD / "results.jsonl")
    args = parser.parse_args()
    args.python = args.venv / "bin" / "python"
    args.adder = args.adder.resolve()
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(args.realtime))  # children inherit it
    if args.setup:
        setup(args.venv)
    if args.suite or args.check:
        for path, hint in ((args.python, "--setup makes it"), (args.adder, "--adder names it")):
            if not path.exists():
                sys.exit(f"{path}: not found; {hint}")
    if args.check:
        compare.run(args)
    elif args.suite:
        cases = [c for c in SUITES[args.suite] if (args.only or "") in f"{c[0]}/{c[1]}"]
        measure(args, cases, "mamba2-jax" if args.suite == "jax" else "llama.cpp")
    if args.report or (args.suite and not args.check):
        report.print_table(args.results)


if __name__ == "__main__":
    main()
