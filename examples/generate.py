"""Generate text: python generate.py [MODEL] [PROMPT]

MODEL is a directory, a file, or a repository that was fetched with `adder pull`; without it the demo
model, which writes English-looking words.
"""

import sys

import adder


def main(model=None, prompt="It was a fine morning, and "):
    model = adder.load(model)
    print(model)

    answer = model.generate(prompt, max_tokens=60, seed=1)
    print(f"{prompt}{answer}")
    print(f"({len(answer.tokens)} tokens in {answer.timings.decode_s:.2f} s, {answer.finish_reason})")

    # Three at once; each has the bits that it would have alone.
    for answer in model.generate_batch([prompt] * 3, seeds=[1, 2, 3], max_tokens=30):
        print("*", answer)

    # What the model thought of, with each token of its answer.
    for place in model.generate(prompt, max_tokens=5, temperature=0, logprobs=3).logprobs:
        print(*(f"{other.text!r} {other.logprob:.2f}" for other in place.top), sep="  ")


if __name__ == "__main__":
    main(*sys.argv[1:])
