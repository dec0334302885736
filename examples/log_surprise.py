"""Which lines of a log are unusual: python log_surprise.py LOG [MODEL] [--plot FILE.png]

Each line costs what the model must be told to guess it, given all lines before: bits per byte. A
state-space model reads logs of any length, and what repeats becomes cheap. Plots with matplotlib
where it is installed, else with characters.
"""

import argparse
import math

import numpy as np

import adder


def bits_per_line(model, text):
    """For each line (its newline included): (line, bits, bytes)."""
    score = model.score(text)
    sizes = np.array([len(model.tokenizer.token_bytes(t)) for t in score.tokens])
    ends = np.cumsum(sizes)
    bits = -np.nan_to_num(score.logprobs) / math.log(2)
    rows, at = [], 0
    for line in text.splitlines(keepends=True):
        size = len(line.encode())
        # A token belongs to the line in which it begins.
        inside = (ends - sizes >= at) & (ends - sizes < at + size)
        rows.append((line.rstrip("\n"), float(bits[inside].sum()), size))
        at += size
    return rows


def plot(values, file):
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        top = max(values)
        for number, value in enumerate(values, 1):
            print(f"{number:5} {'#' * round(60 * value / top)} {value:.2f}")
        return
    figure, axes = plt.subplots(figsize=(10, 3))
    axes.plot(range(1, len(values) + 1), values, linewidth=0.8)
    axes.set(xlabel="line", ylabel="bits per byte", title="Surprise")
    figure.savefig(file, dpi=120, bbox_inches="tight")
    print(f"wrote {file}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--plot", default="surprise.png", metavar="FILE.png")
    options = parser.parse_args()
    with open(options.log, encoding="utf-8", errors="replace", newline="") as file:
        rows = bits_per_line(adder.load(options.model), file.read())
    for line, bits, size in sorted(rows, key=lambda row: -row[1])[:10]:
        print(f"{bits:8.1f} bits {bits / size:6.2f} per byte  {line[:100]}")
    plot([bits / size for _, bits, size in rows], options.plot)


if __name__ == "__main__":
    main()
