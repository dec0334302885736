#!/usr/bin/env python3
"""The numbers of docs/benchmarking.md, section XLA: Adder on a PJRT plugin, on cpu, and mamba2-jax, float32.

    bench/xla.py speed       prefill and greedy decode of 130M and 370M shapes, the three sides in turn
    bench/xla.py context     decode after prompts of 128 to 32768 tokens
    bench/xla.py recompute   a token from the state against computing the whole prompt again, 128 to 4096
    bench/xla.py loop        single steps against the decode loop on the device
    bench/xla.py compile     seconds to compile, and what the cache on the disk saves at the second start
    bench/xla.py --report    the tables of all that was measured

ADDER_PJRT_PLUGIN names the plugin, --jax-python a Python with mamba2-jax and numpy (without mamba2-jax its rows are
missing). Results are lines of build/xla-bench/results.jsonl, and the tables show medians of lines of the same kind. A part
takes minutes; --models, --sides and --lengths make it shorter.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = ("speed", "context", "recompute", "loop", "compile")
MODELS = ("mamba2-130m", "mamba2-370m")
SIDES = ("xla", "cpu", "mamba2-jax", "mamba2-jax as it comes")


def run(command, **environment):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}")
    return json.loads(done.stdout)


class Bench:
    def __init__(self, args):
        self.args = args
        args.folder.mkdir(parents=True, exist_ok=True)

    def keep(self, part, **result):
        line = {"part": part, "time": time.strftime("%Y-%m-%d %H:%M:%S"), **result}
        print(json.dumps(line), file=sys.stderr)
        with open(self.args.folder / "results.jsonl", "a") as out:
            out.write(json.dumps(line) + "\n")

    def bench(self, device, model, prompt, gen, repeat=1):
        r = run([self.args.adder, "bench", "--synthetic", model, "--type", "f32", "--device", device, "--prompt", prompt,
                 "--gen", gen, "--temp", 0, "--repeat", repeat, "--json"])
        decode, = r["decode"]
        return {"prefill": r["prefill"]["tok_s"]["median"], "decode": decode["tok_s"]["median"],
                "prefill_of_fma": r["prefill"]["of_fma"], "decode_of_read": decode["of_read"]}

    def file(self, model):
        target = self.args.folder / model
        if not target.exists():
            subprocess.run([self.args.jax_python, ROOT / "tools/make_synthetic.py", model, target, "--dtype", "f32"], check=True)
        return target

    def speed(self):
        for model in self.args.models:
            for prompt in self.args.lengths or (512, 2048):
                for side in self.args.sides:
                    self.keep("speed", model=model, prompt=prompt, side=side, **self.speed_of(model, prompt, side))

    def speed_of(self, model, prompt, side):
        if not side.startswith("mamba2-jax"):
            return self.bench(side, model, prompt, 64)
        as_it_comes = side.endswith("as it comes")  # a third of a second and more for a token
        gen = 8 if as_it_comes else 64
        r = run([self.args.jax_python, ROOT / "bench/peers/jax_peer.py", model, "--prompt", prompt, "--gen", gen,
                 "--decode-chunk", 256 if as_it_comes else 1])
        return {"prefill": prompt / r["prefill_s"], "decode": gen / r["decode_s"]}

    def context(self):
        """The state after each length is written once; from it, steps enough that reading it does not count."""
        model = self.file(MODELS[0])
        for length in self.args.lengths or (128, 2048, 8192, 32768):
            state = self.args.folder / f"{length}.state"
            base = [self.args.adder, "run", model, "--device", "xla", "--temp", 0, "--ignore-eos", "--json"]
            if not state.exists():
                ids = self.args.folder / f"{length}.ids"
                ids.write_text(",".join(str(1 + i * 7919 % 50000) for i in range(length)))
                run([*base, "--tokens", f"@{ids}", "-n", 1, "--state-out", state])
            self.keep("context", length=length, decode=self.loop_rate([*base, "--state-in", state, "--tokens", "5"]))

    def loop_rate(self, command):
        """Tokens a second of the decode loop: the difference of two lengths, so that loading the program drops out."""
        # The first run may compile.
        _, few, many = (run([*command, "-n", n])["timings"]["decode_s"] for n in (33, 33, 161))
        return 128 / (many - few)

    def recompute(self):
        for prompt in self.args.lengths or (128, 512, 1024, 2048, 4096):
            r = self.bench("xla", MODELS[0], prompt, 16)
            self.keep("recompute", length=prompt, cached=r["decode"], whole=r["prefill"] / prompt)

    def loop(self):
        model = self.file(MODELS[0])
        steps = self.bench("xla", MODELS[0], 128, 128)["decode"]
        loop = self.loop_rate([self.args.adder, "run", model, "--device", "xla", "--temp", 0, "--ignore-eos", "--json",
                               "--tokens", "1,2,3,4,5"])
        self.keep("loop", steps=steps, loop=loop)

    def compile(self):
        with tempfile.TemporaryDirectory() as cache:
            for start in ("first", "second"):
                r = run([self.args.adder, "compile", self.file(MODELS[0]), "--device", "xla", "--lengths", "128,512", "--temp", 0,
                         "--json"], XDG_CACHE_HOME=cache)
                self.keep("compile", start=start, parts=r["parts"])


def table(head, rows):
    print("\n| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def report(file):
    lines = [json.loads(line) for line in file.read_text().splitlines()]

    def median(part, key, **match):
        found = [r[key] for r in lines if r["part"] == part and key in r and all(r.get(k) == v for k, v in match.items())]
        return statistics.median(found) if found else None

    def text(value, digits=1, unit=""):
        return "" if value is None else f"{value:.{digits}f}{unit}"

    def share(value):
        return "" if value is None else f"{100 * value:.0f} %"

    rows = []
    for model, prompt in sorted({(r["model"], r["prompt"]) for r in lines if r["part"] == "speed"}):
        for side in SIDES:
            at = {"model": model, "prompt": prompt, "side": side}
            rows.append([model, str(prompt), side, text(median("speed", "prefill", **at)), share(median("speed", "prefill_of_fma", **at)),
                         text(median("speed", "decode", **at)), share(median("speed", "decode_of_read", **at))])
    if rows:
        table(["model", "prompt", "", "prefill", "of multiply-adds", "decode", "of read"], [r for r in rows if r[3]])
    lengths = sorted({r["length"] for r in lines if r["part"] == "context"})
    if lengths:
        table(["decode after", "tokens/s"], [[str(n), text(median("context", "decode", length=n))] for n in lengths])
    rows = []
    for n in sorted({r["length"] for r in lines if r["part"] == "recompute"}):
        cached, whole = (median("recompute", k, length=n) for k in ("cached", "whole"))
        rows.append([str(n), text(cached), text(whole, 2), text(cached / whole, 0)])
    if rows:
        table(["context", "from the state", "computed again", "times"], rows)
    if median("loop", "loop"):
        table(["single steps", "decode loop"], [[text(median("loop", k)) for k in ("steps", "loop")]])
    starts = {r["start"]: r["parts"] for r in lines if r["part"] == "compile"}
    if starts:
        table(["", "programs", "first start, s", "second start, s"],
              [[f"{a['part']} {a.get('length', a.get('batch'))}", str(a["compiled"]), text(a["seconds"], 2), text(b["seconds"], 2)]
               for a, b in zip(starts["first"], starts["second"])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--lengths", nargs="+", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--realtime", type=int, metavar="PRIORITY", help="run under SCHED_FIFO: for a machine that is not idle")
    parser.add_argument("--adder", type=pathlib.Path, default=ROOT / "build/release/apps/adder")
    parser.add_argument("--jax-python", type=pathlib.Path, default=sys.executable)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/xla-bench")
    args = parser.parse_args()
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(args.realtime))  # children inherit it
    if args.part:
        for _ in range(args.rounds):
            getattr(Bench(args), args.part)()
    if args.report or not args.part:
        report(args.folder / "results.jsonl")


if __name__ == "__main__":
    main()
