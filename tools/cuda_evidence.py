#!/usr/bin/env python3
"""What the compiler made of the CUDA kernels: registers, spills, shared memory, occupancy, and the
instructions of each kernel's hottest loop, with the time that they imply. Needs a build with nvcc, its
target cuda_shapes, and cuobjdump (with nvdisasm beside it), but no GPU. Writes the tables of
docs/cuda-kernels.md between its marks, for those architectures that the build has.

    ninja -C build/ci adder_cuda cuda_shapes
    tools/cuda_evidence.py --build build/ci [--cuobjdump PATH] [--print]

cuda_shapes runs the kernels under the emulator at the shapes of real models and says how they are
launched (threads and shared memory of a block).
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "backends" / "cuda"
DOC = ROOT / "docs" / "cuda-kernels.md"
BEGIN, END = "<!-- tools/cuda_evidence.py begins -->", "<!-- tools/cuda_evidence.py ends -->"

# Per multiprocessor: registers, shared memory a block may ask for and all blocks have, warps, blocks.
LIMITS = {
    "sm_80": {"registers": 65536, "shared": 164 << 10, "reserved": 1 << 10, "warps": 64, "blocks": 32},
    "sm_90a": {"registers": 65536, "shared": 228 << 10, "reserved": 1 << 10, "warps": 64, "blocks": 32},
}
# Lanes per clock and multiprocessor, and clocks of an mma.sync m16n8k16 (bf16); the clock in GHz.
# An mma.sync reaches about 62 % of wgmma's rate on sm_90.
DEVICES = {
    "A100": {"arch": "sm_80", "sms": 108, "ghz": 1.41, "fp32": 64, "mufu": 16, "mma": 2.0},
    "H100": {"arch": "sm_90a", "sms": 132, "ghz": 1.755, "fp32": 128, "mufu": 16, "mma": 1.0 / 0.62},
    "H200": {"arch": "sm_90a", "sms": 132, "ghz": 1.755, "fp32": 128, "mufu": 16, "mma": 1.0 / 0.62},
}
DTYPES = {0: "F32", 1: "F16", 2: "BF16", 10: "Q8_0", 11: "Q4_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}  # core/dtype.h
ISSUE = 128  # lanes per clock: four warp instructions
KINDS = collections.OrderedDict([
    ("ex2", r"MUFU\.EX2"), ("mufu", r"MUFU\.(?!EX2)"), ("fp32", r"(FFMA|FMUL|FADD|FMNMX)"),
    ("mma", r"(HMMA|IMMA|HGMMA)"), ("shfl", r"SHFL"), ("lds", r"(LDS|LDSM)"), ("sts", r"STS"),
    ("ldg", r"LDG"), ("stg", r"STG"), ("async", r"(LDGSTS|UBLKCP)"), ("bar", r"(BAR|SYNCS)"),
])


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr}")
    return done.stdout


def short_name(demangled):
    """A kernel's name with its template arguments, without namespaces and parameters."""
    name = re.sub(r"\(adder::DType\)(\d+)", lambda m: DTYPES.get(int(m[1]), m[1]), demangled)
    name = re.sub(r"(\b(adder|cuda|cuda_emulated|_GLOBAL__N__\w+)|\(anonymous namespace\)|<unnamed>)::", "", name)
    name = re.sub(r"^void ", "", name)
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:i]
            break
    name = re.sub(r"\((\w|:|\s)+\)", "", name)  # casts of template arguments
    return name.replace(" ", "")


def demangle(names):
    return dict(zip(names, run("c++filt", *names).splitlines())) if names else {}


def launches(program):
    """{kernel: (threads, shared bytes)} of the largest launch that the program made of each."""
    shapes = {}
    for line in run(program).splitlines():
        found = re.match(r"launch (\d+) threads (\d+) shared (.*)", line)
        if found:
            name = short_name(found[3])
            shapes[name] = max(shapes.get(name, (0, 0)), (int(found[1]), int(found[2])))
    return shapes


def occupancy(arch, registers, threads, shared):
    limit = LIMITS[arch]
    warps = (threads + 31) // 32
    per_warp = (registers * 32 + 255) // 256 * 256
    blocks = min(limit["blocks"], limit["warps"] // warps, limit["registers"] // (per_warp * warps),
                 limit["shared"] // (shared + limit["reserved"]))
    return blocks, blocks * warps / limit["warps"]


class Loop:
    def __init__(self, instructions):
        self.size = len(instructions)
        self.count = {k: sum(bool(re.match(p, i)) for i in instructions) for k, p in KINDS.items()}
        wide = [i for i in instructions if re.match(r"(LDG|STG|LDS|STS|LDGSTS)\b.*\.128|LDSM|UBLKCP|LDGSTS.*\.128", i)]
        self.wide = len(wide)

    def weight(self):
        c = self.count
        return (64 * c["mma"] + 8 * (c["ex2"] + c["mufu"]) + c["fp32"] + c["ldg"]) * 1000 + self.size


def hottest_loop(sass):
    """The loop that has most to compute outside of the loops within it; the whole kernel if there is none."""
    code = [(int(a, 16), text) for a, text in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", sass)]
    text_of = [re.sub(r"^@!?U?P\w+\s+", "", t).strip() for _, t in code]
    index = {a: i for i, (a, _) in enumerate(code)}
    spans = set()
    for i, text in enumerate(text_of):
        found = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)", text)
        target = index.get(int(found[1], 16)) if found else None
        if target is not None and target < i:
            spans.add((target, i))
    loops = []
    for begin, end in spans:
        within = [s for s in spans if s != (begin, end) and begin <= s[0] and s[1] <= end]
        loops.append(Loop([text_of[i] for i in range(begin, end + 1) if not any(a <= i <= b for a, b in within)]))
    return max(loops or [Loop(text_of)], key=Loop.weight)


def read_kernels(arch, cuobjdump, build):
    """{name: its resources and loops} of an architecture, from the objects of a build."""
    objects = build / "CMakeFiles" / "adder_cuda.dir" / "src" / "backends" / "cuda"
    kernels = {}
    for binary in sorted(objects.rglob("*.cu.o")):
        if not (SOURCES / binary.relative_to(objects)).with_suffix("").exists():
            continue  # left over from an older build
        usage = dict(re.findall(r"Function (\S+):\s*\n?\s*(REG:.*)", run(cuobjdump, "-res-usage", "-arch", arch, str(binary))))
        sass = re.split(r"\n\s*Function : ", run(cuobjdump, "-sass", "-arch", arch, str(binary)))[1:]
        bodies = {s.split("\n", 1)[0].strip(): s for s in sass}
        plain = demangle(list(usage))
        for mangled, numbers in usage.items():
            resources = {k: int(v) for k, v in re.findall(r"(\w+)(?:\[\d\])?:(\d+)", numbers)}
            spills = len(re.findall(r"\b(?:STL|LDL)\b", bodies.get(mangled, "")))
            kernels[short_name(plain[mangled])] = {
                "file": binary.relative_to(objects).as_posix(), "registers": resources["REG"],
                "stack": resources.get("STACK", 0), "spills": spills, "loop": hottest_loop(bodies.get(mangled, ""))}
    return kernels


def bound(loop, device):
    """Clocks of a multiprocessor for one pass of a warp through the loop, and the pipe that takes them."""
    c = loop.count
    pipes = {"exp unit": (c["ex2"] + c["mufu"]) * 32 / device["mufu"], "FP32": c["fp32"] * 32 / device["fp32"],
             "issue": loop.size * 32 / ISSUE, "tensor": c["mma"] * device["mma"]}
    name = max(pipes, key=pipes.get)
    return pipes[name], name


def tables(arch_kernels, shapes):
    lines = []
    for arch, kernels in arch_kernels.items():
        lines += [f"### Resources, {arch}", "",
                  "| kernel | registers | stack, spills | threads | shared, bytes | blocks an SM | occupancy |",
                  "|---|---|---|---|---|---|---|"]
        for name, k in sorted(kernels.items(), key=lambda item: (item[1]["file"], item[0])):
            threads, shared = shapes.get(name, (0, 0))
            if threads == 0:
                continue
            blocks, share = occupancy(arch, k["registers"], threads, shared)
            lines.append(f"| `{name}` | {k['registers']} | {k['stack']}, {k['spills']} | {threads} | {shared} | "
                         f"{blocks} | {share:.0%} |")
        lines += ["", f"### The hottest loop, {arch}", "",
                  "Instructions of one pass of a warp, without loops inside the loop. 128: accesses of 16 bytes a lane, of all loads and stores.", "",
                  "| kernel | all | ex2 | other MUFU | FP32 | mma | shuffles | shared loads, stores | global loads, stores | "
                  "asynchronous | 128 |", "|---|---|---|---|---|---|---|---|---|---|---|"]
        for name, k in sorted(kernels.items(), key=lambda item: (item[1]["file"], item[0])):
            if name not in shapes:
                continue
            c = k["loop"].count
            lines.append(f"| `{name}` | {k['loop'].size} | {c['ex2']} | {c['mufu']} | {c['fp32']} | {c['mma']} | "
                         f"{c['shfl']} | {c['lds']}, {c['sts']} | {c['ldg']}, {c['stg']} | {c['async']} | {k['loop'].wide} |")
        lines.append("")
    devices = {name: d for name, d in DEVICES.items() if d["arch"] in arch_kernels}
    lines += ["### What the loops imply", "",
              "Clocks that a multiprocessor needs for one pass of one warp when nothing but the busiest pipe counts.", "",
              "| kernel | " + " | ".join(devices) + " |", "|---|" + "---|" * len(devices)]
    files = {name: k["file"] for kernels in arch_kernels.values() for name, k in kernels.items() if name in shapes}
    for name in sorted(files, key=lambda n: (files[n], n)):
        cells = []
        for device in devices.values():
            kernel = arch_kernels[device["arch"]].get(name)
            cells.append("{:.1f} ({})".format(*bound(kernel["loop"], device)) if kernel else "-")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path, help="folder of a build with nvcc")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    parser.add_argument("--print", action="store_true", help="to the terminal instead of into the document")
    options = parser.parse_args()
    if options.cuobjdump is None:
        sys.exit("cuobjdump: not on PATH; give it with --cuobjdump")
    os.environ["PATH"] += os.pathsep + str(pathlib.Path(options.cuobjdump).parent)  # nvdisasm lies beside it
    arch_kernels = {arch: read_kernels(arch, options.cuobjdump, options.build) for arch in LIMITS}
    shapes = launches(str(options.build / "tests" / "cuda_shapes"))
    arch_kernels = {arch: kernels for arch, kernels in arch_kernels.items() if set(kernels) & set(shapes)}
    if not arch_kernels:
        sys.exit(f"{options.build}: no kernels: expected a build with nvcc for one of {', '.join(LIMITS)}")
    missing = sorted(set(shapes) - set().union(*arch_kernels.values()))
    if missing:
        sys.exit(f"launched, but not among the compiled kernels: {', '.join(missing)}")
    text = tables(arch_kernels, shapes)
    if options.print:
        print(text, end="")
        return
    document = DOC.read_text()
    if BEGIN not in document or END not in document:
        sys.exit(f"{DOC}: expected the marks '{BEGIN}' and '{END}'")
    before, rest = document.split(BEGIN, 1)
    temporary = DOC.with_suffix(".tmp")
    temporary.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END, 1)[1]}")
    temporary.rename(DOC)


if __name__ == "__main__":
    main()
