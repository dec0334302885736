"""Whether both programs compute the same: logits of a prompt and greedy tokens after it."""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import weights

HERE = pathlib.Path(__file__).resolve().parent
PROMPT, GENERATED = 48, 32
CASES = (("mamba-130m", "q8_0"),)
# Float32 sums of up to 3072 terms in another order, through 24 layers: 1e-5 was seen; a wrong operation
# or weight gives 1e-2 and more. llama.cpp keeps activations in 8 bits for q8_0, so does Adder, but each
# rounds its own inputs.
TOLERANCE = {"f32": 1e-3, "q8_0": 5e-2}

DIFFERENCE = """
import sys, numpy as np
a, b = (np.load(f)[:, :int(sys.argv[3])].astype(np.float64) for f in sys.argv[1:3])
print(np.abs(a - b).max() / np.abs(b).max(), int((a.argmax(1) == b.argmax(1)).sum()))
"""


def output(command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}")
    return done.stdout


def run(args):
    """Exits with status 1 when the logits of a case differ by more than its tolerance."""
    rng = random.Random(1)
    prompt = ",".join(str(rng.randrange(2, 50254)) for _ in range(PROMPT))
    wrong = False
    for model, kind in CASES:
        file = weights.model_file(args.adder, args.python, args.models, model, kind)
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = pathlib.Path(folder, "adder.npy"), pathlib.Path(folder, "llama.npy")
            output([args.adder, "logits", file, "--tokens", prompt, "--last", PROMPT, "--out", ours])
            greedy = json.loads(output([args.python, HERE / "llama_peer.py", file, "--cores",
                                        ",".join(map(str, args.cores)), "--tokens", prompt, "--gen", GENERATED,
                                        "--out", theirs]))
            difference, equal = output([args.python, "-c", DIFFERENCE, ours, theirs, 50277]).split()
        run_json = json.loads(output([args.adder, "run", file, "--tokens", prompt, "-n", GENERATED, "--temp", 0,
                                      "--ignore-eos", "--json"]))
        tokens = run_json["tokens"]
        same = next((i for i, (a, b) in enumerate(zip(tokens, greedy["tokens"])) if a != b), GENERATED)
        bad = not float(difference) <= TOLERANCE[kind]
        wrong |= bad
        print(f"{model} {kind}: logits differ by {float(difference):.2g} of the largest"
              f"{' (TOO MUCH)' if bad else ''}, the most probable id is the same at {equal} of {PROMPT} positions, "
              f"the first {same} of {GENERATED} greedy tokens agree")
    if wrong:
        sys.exit(1)
