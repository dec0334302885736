"""The table of build/peers/results.jsonl."""
import json
import statistics


def read(path):
    if not path.exists():
        return []
    with open(path) as lines:
        return [dict(r, case=tuple(r["case"])) for r in map(json.loads, lines)]


def title(case):
    model, kind, prompt, gen, sequences = case
    return f"{model} {kind}, {prompt}+{gen}" + (f" x {sequences}" if sequences > 1 else "")


def median(records, side, field):
    return statistics.median(r[field] for r in records if r["side"] == side)


def pair(records, field, digits, scale=1.0, inverse=False):
    """Adder, llama.cpp, and how many times better Adder is"""
    a, b = (median(records, side, field) * scale for side in ("adder", "llama.cpp"))
    return [f"{a:.{digits}f}", f"{b:.{digits}f}", f"{(b / a if inverse else a / b):.2f}"]


def rows(records):
    for case in dict.fromkeys(r["case"] for r in records):
        mine = [r for r in records if r["case"] == case]
        rounds = [sum(r["side"] == side for r in mine) for side in ("adder", "llama.cpp")]
        if min(rounds) == 0:
            continue
        yield [title(case), str(min(rounds)), *pair(mine, "prefill_tok_s", 0), *pair(mine, "decode_tok_s", 1),
               f"{100 * median(mine, 'adder', 'decode_of_read'):.0f}%",
               *pair(mine, "peak_rss_bytes", 0, 1e-6, inverse=True), *pair(mine, "load_s", 2, inverse=True)]


HEADER = ["model, weights, prompt+generated", "n", "prefill", "llama", "ratio", "decode", "llama", "ratio", "of read",
          "MB", "llama", "less", "load s", "llama", "less"]


def print_table(path):
    records = read(path)
    if not records:
        print(f"{path}: no results")
        return
    build = records[-1]["build"]
    records = [r for r in records if r["build"] == build]
    adder = [r for r in records if r["side"] == "adder"]
    table = [HEADER, ["-" * len(name) for name in HEADER], *rows(records)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADER))]
    print(build)
    if adder:
        read_rate = statistics.median(r["read_gb_s"] for r in adder)
        print(f"{adder[-1]['cpu']}; {adder[-1]['device']}; memory read {read_rate:.1f} GB/s; "
              f"{records[0]['time']} to {records[-1]['time']}")
    print("tokens/s, medians of n processes; both sides greedy, the same file, threads and cores\n")
    for row in table:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("| " + " | ".join(cells) + " |")
