"""Whether both programs compute the same: logits of a prompt and greedy tokens after it."""
import json
import pathlib
import random
import sys
import tempfile

import weights

HERE = pathlib.Path(__file__).resolve().parent
PROMPT, GENERATED = 48, 32
VOCABULARY = 50277  # ids of GPT-NeoX; the rows after them are padding
CASES = (("mamba-130m", "f32"), ("mamba2-130m", "f32"), ("mamba-130m", "q8_0"))
# float32: sums of up to 1536 terms in another order, through 24 layers, give 3e-6; a wrong operation or
# weight gives 1e-2 and more. q8_0: both programs round activations to 8 bits, in blocks and scales of
# their own, which gives 0.04 with random weights; rounding the weights alone moves the logits by 0.08.
TOLERANCE = {"f32": 1e-4, "q8_0": 0.08}

DIFFERENCE = """
import sys, numpy as np
a, b = (np.load(f)[:, :int(sys.argv[3])].astype(np.float64) for f in sys.argv[1:3])
print(np.abs(a - b).max() / np.abs(b).max(), int((a.argmax(1) == b.argmax(1)).sum()))
"""


def run(args):
    """Exits with status 1 when the logits of a case differ by more than its tolerance."""
    rng = random.Random(1)
    prompt = ",".join(str(rng.randrange(VOCABULARY)) for _ in range(PROMPT))
    wrong = False
    for model, kind in CASES:
        file = weights.model_file(args.adder, args.python, args.models, model, kind)
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = pathlib.Path(folder, "adder.npy"), pathlib.Path(folder, "llama.npy")
            weights.output([args.adder, "logits", file, "--tokens", prompt, "--last", PROMPT, "--out", ours])
            theirs_json = weights.output([
                args.python, HERE / "llama_peer.py", file, "--cores", ",".join(map(str, args.cores)),
                "--tokens", prompt, "--gen", GENERATED, "--out", theirs])
            difference, equal = weights.output([args.python, "-c", DIFFERENCE, ours, theirs, VOCABULARY]).split()
        ours_json = weights.output([args.adder, "run", file, "--tokens", prompt, "-n", GENERATED, "--temp", 0,
                                    "--ignore-eos", "--json"])
        pairs = zip(json.loads(ours_json)["tokens"], json.loads(theirs_json)["tokens"], strict=True)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), GENERATED)
        bad = not float(difference) <= TOLERANCE[kind]
        wrong |= bad
        print(f"{model} {kind}: logits differ by {float(difference):.2g} of the largest"
              f"{' (TOO MUCH)' if bad else ''}, the most probable id is the same at {equal} of {PROMPT} positions, "
              f"the first {same} of {GENERATED} greedy tokens agree")
    if wrong:
        sys.exit(1)
