"""GGUF files with random weights, written by Adder's own commands from tools/make_synthetic.py."""
import pathlib
import shutil
import subprocess
import sys

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def run(command, **kwargs):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.DEVNULL, **kwargs)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}")


def model_file(adder, python, folder, model, kind):
    """folder/MODEL.KIND.gguf, made unless it exists. The tensors are those that llama.cpp knows."""
    target = folder / f"{model}.{kind}.gguf"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{model}.source"
    print(f"writing {target.name}", file=sys.stderr)
    try:
        run([python, TOOLS / "make_synthetic.py", model, source, "--dtype", "f32" if kind == "f32" else "bf16"])
        if kind == "f32":
            run([adder, "convert", source, target])
        else:
            run([adder, "quantize", source, target, "--type", kind, "--llama-compatible"])
    finally:
        shutil.rmtree(source, ignore_errors=True)
    return target
