#!/usr/bin/env python3
"""The same work by others on a GPU, for bench/gpu.sh: mamba-ssm's kernels and plain PyTorch, whichever can be
imported. Prints one JSON object a line: {"what", "by", "shape", "median_s", "min_s", "max_s"} or {"by", "missing"}.
Times are CUDA events around one call, after warm-up; the median of --repeat.
"""
import argparse
import json
import statistics
import sys

SCANS = [("mamba-130m", 1536), ("mamba-1.4b", 4096), ("mamba-2.8b", 5120)]
SSDS = [("mamba2-130m", 24, 64, 128), ("mamba2-2.7b", 80, 64, 128)]


def say(**fields):
    print(json.dumps(fields), flush=True)


def timed(torch, call, repeat):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "max_s": max(seconds)}


def measure(torch, repeat, what, by, shape, call):
    try:
        say(what=what, by=by, shape=shape, **timed(torch, call, repeat))
    except (RuntimeError, torch.cuda.OutOfMemoryError) as error:  # too large, or a kernel that this GPU lacks
        say(what=what, by=by, shape=shape, failed=str(error).splitlines()[0])
        torch.cuda.empty_cache()


def selective_scan(torch, function, by, options):
    for name, d_inner in SCANS:
        for batch in (1, 8):
            for length in options.lengths:
                shape = f"{name}, {batch} x {length}"
                try:
                    def make(*size, dtype=torch.bfloat16):
                        return torch.randn(*size, device="cuda", dtype=dtype)
                    u, delta, z = (make(batch, d_inner, length) for _ in range(3))
                    A = -torch.rand(d_inner, 16, device="cuda") * 8
                    B, C = make(batch, 1, 16, length), make(batch, 1, 16, length)
                    D, bias = make(d_inner, dtype=torch.float32), make(d_inner, dtype=torch.float32)
                except torch.cuda.OutOfMemoryError:
                    say(what="selective_scan", by=by, shape=shape, failed="out of memory")
                    torch.cuda.empty_cache()
                    continue
                measure(torch, options.repeat, "selective_scan", by, shape,
                        lambda: function(u, delta, A, B, C, D, z=z, delta_bias=bias, delta_softplus=True))


def step_loop(torch, options):
    """Rung (a) run step by step from the host: one small kernel after another for each token."""
    length, d_inner = min(1024, max(options.lengths)), 5120
    h = torch.zeros(d_inner, 16, device="cuda")
    A = -torch.rand(d_inner, 16, device="cuda") * 8
    delta = torch.rand(length, d_inner, 1, device="cuda")
    u = torch.randn(length, d_inner, 1, device="cuda")
    B, C = torch.randn(length, 1, 16, device="cuda"), torch.randn(length, 16, 1, device="cuda")

    def loop():
        state = h
        for t in range(length):
            state = torch.exp(delta[t] * A) * state + delta[t] * B[t] * u[t]
            state @ C[t]

    measure(torch, max(3, options.repeat // 4), "selective_scan", "PyTorch, step by step", f"mamba-2.8b, 1 x {length}", loop)


def ssd(torch, function, options):
    for name, heads, headdim, d_state in SSDS:
        for batch in (1, 8):
            for length in options.lengths:
                shape = f"{name}, {batch} x {length}"
                try:
                    x = torch.randn(batch, length, heads, headdim, device="cuda", dtype=torch.bfloat16)
                    dt = torch.randn(batch, length, heads, device="cuda", dtype=torch.bfloat16)
                    A = -torch.rand(heads, device="cuda") * 8
                    B, C = (torch.randn(batch, length, 1, d_state, device="cuda", dtype=torch.bfloat16) for _ in range(2))
                    D, bias = torch.ones(heads, device="cuda"), torch.zeros(heads, device="cuda")
                except torch.cuda.OutOfMemoryError:
                    say(what="ssd_scan", by="mamba-ssm", shape=shape, failed="out of memory")
                    torch.cuda.empty_cache()
                    continue
                measure(torch, options.repeat, "ssd_scan", "mamba-ssm", shape,
                        lambda: function(x, dt, A, B, C, 256, D=D, dt_bias=bias, dt_softplus=True, return_final_states=True))


def attention(torch, options):
    """One causal attention layer of mamba-2.8b's width: projections and FlashAttention through PyTorch."""
    width, heads = 2560, 20
    for length in options.lengths:
        try:
            x = torch.randn(1, length, width, device="cuda", dtype=torch.bfloat16)
            inward = torch.randn(width, 3 * width, device="cuda", dtype=torch.bfloat16) * width**-0.5
            outward = torch.randn(width, width, device="cuda", dtype=torch.bfloat16) * width**-0.5
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue

        def layer():
            q, k, v = (x @ inward).view(1, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(1, length, width) @ outward

        measure(torch, options.repeat, "attention layer", "PyTorch", f"width {width}, 1 x {length}", layer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=lambda s: [int(n) for n in s.split(",")], default=[128, 512, 2048, 4096, 8192, 32768])
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        say(by="PyTorch", missing=str(error))
        return 0
    if not torch.cuda.is_available():
        say(by="PyTorch", missing="it sees no GPU")
        return 0
    torch.manual_seed(1)
    with torch.inference_mode():
        try:
            from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
            selective_scan(torch, selective_scan_fn, "mamba-ssm", options)
        except ImportError as error:
            say(by="mamba-ssm, selective_scan_fn", missing=str(error))
        try:
            from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
            ssd(torch, mamba_chunk_scan_combined, options)
        except ImportError as error:
            say(by="mamba-ssm, mamba_chunk_scan_combined", missing=str(error))
        step_loop(torch, options)
        attention(torch, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
