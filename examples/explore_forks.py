"""A tree of continuations: python explore_forks.py [MODEL] [PROMPT]

The prompt is read once. Its state is a value of fixed size: every branch goes on from the state of
its parent, nothing is read twice, and the least probable branches are dropped.
"""

import math
import sys

import adder


def explore(model, prompt, depth=3, width=3, keep=3, tokens=8):
    """The `keep` most probable leaves of a tree: [(log-probability, text)], best first."""
    branches = [(0.0, "", model.feed(None, prompt))]
    for level in range(depth):
        seeds = [level * width + i for _ in branches for i in range(width)]
        parents = [branch for branch in branches for _ in range(width)]
        # All branches of a level at once, each from its own state.
        answers = model.generate_batch(
            [""] * len(parents),
            states=[state for _, _, state in parents],
            seeds=seeds,
            temperature=1.0,
            max_tokens=tokens,
            logprobs=0,
            ignore_eos=True,
            keep_state=True,
        )
        grown = {}
        for (value, text, _), answer in zip(parents, answers):
            value += sum(p.logprob for p in answer.logprobs)
            grown[text + answer.text] = (value, text + answer.text, answer.state)
        branches = sorted(grown.values(), key=lambda branch: -branch[0])[:keep]
    return [(value, text) for value, text, _ in branches]


def main(path=None, prompt="It was a fine morning, and "):
    model = adder.load(path)
    for value, text in explore(model, prompt):
        print(f"{value / math.log(2):8.1f} bits  {prompt}{text!r}")

    # Taking back: the very bits of never having seen it.
    state = model.feed(None, prompt)
    further = model.generate("", state=state, max_tokens=20).state
    back = further.rollback(20)
    print("rolled back exactly:", bool((back.ssm(0) == state.ssm(0)).all()))


if __name__ == "__main__":
    main(*sys.argv[1:])
