#!/usr/bin/env python3
"""The table of bench/gpu.sh, from the files that it left: bench/gpu_report.py FOLDER."""
import json
import pathlib
import sys

# What a reading of clocks_throttle_reasons.active says beyond idle (1), application clocks (2) and
# sync boost (16): power and thermal limits.
THROTTLED = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal",
             0x80: "power brake"}


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else float("nan")


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


class Readings:
    """What nvidia-smi said five times a second while a part ran."""

    def __init__(self, path):
        self.sm, self.memory, self.temperature, self.power, self.reasons = [], [], [], [], 0
        for line in path.read_text().splitlines() if path.exists() else []:
            fields = [f.strip() for f in line.split(",")]
            if len(fields) != 5:
                continue
            for values, text in zip((self.sm, self.memory, self.temperature, self.power), fields):
                if number(text) is not None:
                    values.append(number(text))
            try:
                self.reasons |= int(fields[4], 16)
            except ValueError:
                pass

    def text(self):
        if not self.sm:
            return "no readings"
        names = [name for bit, name in THROTTLED.items() if self.reasons & bit]
        warning = f"  THROTTLED: {', '.join(names)}" if names else ""
        return (f"SM {median(self.sm):.0f} MHz ({min(self.sm):.0f} to {max(self.sm):.0f}), memory {median(self.memory):.0f} MHz, "
                f"{max(self.temperature, default=float('nan')):.0f} C, {median(self.power):.0f} W{warning}")


def parts(folder):
    for line in (folder / "parts.tsv").read_text().splitlines():
        name, status, begin, end = line.split("\t")
        yield name, int(status), float(end) - float(begin)


def load(folder, name):
    path = folder / f"{name}.out"
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def scans(folder, names):
    for name in names:
        result = load(folder, name)
        if result is None:
            continue
        print(f"\nselective_scan, {result['model']}, {result['batch']} x {result['tokens']} tokens ({result['device']})")
        print(f"  {'':<24} {'us':>10} {'useful GB/s':>12} {'of limit':>9}  {'bound by':<22} {'speed-up':>9}")
        for rung in result["rungs"]:
            print(f"  {rung['name'] + ' ' + rung['activations']:<24} {rung['median_s'] * 1e6:>10.1f} {rung['useful_bytes_per_s'] * 1e-9:>12.1f} "
                  f"{100 * rung['of_limit']:>8.1f}%  {rung['limit']:<22} {rung['speed_up']:>8.1f}x")


def models(folder, names):
    print(f"\n{'model':<16} {'by':<7} {'prompt':>6} {'prefill tok/s':>14} {'of FMA':>7} {'decode tok/s':>13} {'of read':>8} {'J/token':>9}")
    for name in names:
        result = load(folder, name)
        if result is None:
            continue
        readings = Readings(folder / f"{name}.smi")
        for phase in result["decode"]:
            rate = phase["tok_s"]["median"]
            energy = f"{median(readings.power) / rate:.4f}" if readings.power else "-"
            print(f"{result['model']:<16} {result['device'].split(',')[0]:<7} {result['prefill']['tokens']:>6} {result['prefill']['tok_s']['median']:>14.1f} {100 * result['prefill']['of_fma']:>6.0f}% "
                  f"{rate:>13.1f} {100 * phase['of_read']:>7.0f}% {energy:>9}")
    print("J/token: the median power of the part over its decode rate.")


def xla(folder):
    """What `adder validate` said of xla:cuda, or why there was nothing to ask."""
    for name in ("xla-validate.out", "xla-validate-mamba2.out", "xla-skipped.txt"):
        if (folder / name).exists() and (text := (folder / name).read_text().strip()):
            print(f"\n{text}")


def peers(folder):
    path = folder / "peers.out"
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []
    if not rows:
        return
    print(f"\n{'by others':<24} {'what':<18} {'shape':<28} {'us':>10}")
    for row in rows:
        if "missing" in row:
            print(f"{row['by']:<24} not there: {row['missing']}")
        elif "failed" in row:
            print(f"{row['by']:<24} {row['what']:<18} {row['shape']:<28} failed: {row['failed']}")
        else:
            print(f"{row['by']:<24} {row['what']:<18} {row['shape']:<28} {row['median_s'] * 1e6:>10.1f}")


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: bench/gpu_report.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    print((folder / "gpu.txt").read_text().strip())
    done = list(parts(folder))
    print(f"\n{'part':<20} {'':<8} {'s':>7}")
    for name, status, seconds in done:
        print(f"{name:<20} {'ok' if status == 0 else f'FAILED {status}':<8} {seconds:>7.1f}  {Readings(folder / f'{name}.smi').text()}")
    limits = load(folder, "roofline")
    if limits:
        print()
        for limit in limits["ceilings"][0]["limits"]:
            print(f"{limit['limit']:<22} {limit['ceiling'] * 1e-9:>12.1f} {limit['unit']}")
    scans(folder, [name for name, _, _ in done if name.startswith("scan-")])
    models(folder, [name for name, _, _ in done if name.startswith("model-")])
    xla(folder)
    peers(folder)
    return 1 if any(status != 0 for _, status, _ in done) else 0


if __name__ == "__main__":
    sys.exit(main())
