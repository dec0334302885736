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


def pair(records, peer, field, digits, scale=1.0, inverse=False):
    """Adder, the peer, and how many times better Adder is"""
    a, b = (median(records, side, field) * scale for side in ("adder", peer))
    return [f"{a:.{digits}f}", f"{b:.{digits}f}", f"{(b / a if inverse else a / b):.2f}"]


def rows(records, peer):
    for case in dict.fromkeys(r["case"] for r in records):
        mine = [r for r in records if r["case"] == case]
        rounds = min(sum(r["side"] == side for r in mine) for side in ("adder", peer))
        if rounds == 0:
            continue
        yield [title(case), str(rounds), *pair(mine, peer, "prefill_tok_s", 0), *pair(mine, peer, "decode_tok_s", 1),
               f"{100 * median(mine, 'adder', 'decode_of_read'):.0f}%",
               *pair(mine, peer, "peak_rss_bytes", 0, 1e-6, inverse=True),
               *pair(mine, peer, "load_s", 2, inverse=True)]


HEADER = ["model, weights, prompt+generated", "n", "prefill", "peer", "ratio", "decode", "peer", "ratio", "of read",
          "MB", "peer", "ratio", "load s", "peer", "ratio"]


def print_build(build, records):
    adder = [r for r in records if r["side"] == "adder"]
    peer = next((r["side"] for r in records if r["side"] != "adder"), None)
    if not adder or not peer:
        print(f"{build}: no pair of results\n")
        return
    table = [HEADER, *rows(records, peer)]
    widths = [max(3, *(len(row[i]) for row in table)) for i in range(len(HEADER))]
    table.insert(1, ["-" * w for w in widths])
    read_rate = statistics.median(r["read_gb_s"] for r in adder)
    print(f"Adder and {peer} ({build})")
    print(f"{adder[-1]['cpu']}; {adder[-1]['device']}; memory read {read_rate:.1f} GB/s; "
          f"{records[0]['time']} to {records[-1]['time']}")
    print("tokens/s, medians of n processes; the same threads and cores, greedy; ratio: how many times better Adder "
          "is\n")
    for row in table:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        print("| " + " | ".join(cells) + " |")
    print()


def print_table(path):
    """One table for each peer: its last build."""
    records = read(path)
    if not records:
        print(f"{path}: no results")
    last = {r["side"]: r["build"] for r in records if r["side"] != "adder"}
    for build in last.values():
        print_build(build, [r for r in records if r["build"] == build])
