#!/usr/bin/env python3
"""Writes tests/golden/quant/<type>.bin: rows of stored weights and what they mean.

Needs numpy and the `gguf` package (0.19.0 made the files), whose dequantizers are the oracle.
A file holds one row, 2 * BLOCKS blocks of random bytes with finite scales (256 elements of a plain
type), then the float32 values that gguf.quants.dequantize gives for it, all little endian.
"""
import pathlib

import gguf
import numpy as np

BLOCKS = 4
TYPES = {  # offsets of the float16 scales in a block
    "Q8_0": [0], "Q4_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "F16": [], "BF16": []}
# Besides random scales of both signs: the smallest and the largest subnormal, -0, the largest half.
SCALES = [0x0001, 0x83FF, 0x8000, 0x7BFF]


def stored_row(name, rng):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    if not TYPES[name]:
        bits = rng.integers(0, 1 << 16, 256, dtype=np.uint16)
        exponent = 0x7C00 if name == "F16" else 0x7F80
        return np.where(bits & exponent == exponent, bits & 0x8FFF, bits).view(np.uint8)
    blocks = rng.integers(0, 256, (2 * BLOCKS, size), dtype=np.uint8)
    for at in TYPES[name]:
        scales = rng.normal(0, 0.01, 2 * BLOCKS).astype(np.float16)
        scales[BLOCKS:] = np.array(SCALES, dtype=np.uint16).view(np.float16)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def main():
    folder = pathlib.Path(__file__).parent.parent / "tests/golden/quant"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(20240601)
    for name in TYPES:
        row = stored_row(name, rng)
        values = gguf.quants.dequantize(row, gguf.GGMLQuantizationType[name])
        assert np.isfinite(values).all()
        (folder / f"{name}.bin").write_bytes(row.tobytes() + values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
