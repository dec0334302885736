"""GGUF files with random weights, written by Adder's own commands from tools/make_synthetic.py."""
import pathlib
import shutil
import subprocess
import sys

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def output(command):
    """What the command printed; ends the program if it failed."""
    command = [str(c) for c in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}")
    return done.stdout


def model_file(adder, python, folder, model, kind):
    """folder/MODEL.KIND.gguf, made unless it exists. The tensors are those that llama.cpp knows."""
    target = folder / f"{model}.{kind}.gguf"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{model}.source"
    print(f"writing {target.name}", file=sys.stderr)
    try:
        output([python, TOOLS / "make_synthetic.py", model, source, "--dtype", "f32" if kind == "f32" else "bf16"])
        if kind == "f32":
            output([adder, "convert", source, target])
        else:
            output([adder, "quantize", source, target, "--type", kind, "--llama-compatible"])
    finally:
        shutil.rmtree(source, ignore_errors=True)
    return target
