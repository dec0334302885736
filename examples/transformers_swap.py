#!/usr/bin/env python3
"""Swaps Adder under a transformers Mamba model: the same model object, the same tokens.

PyTorch goes on to multiply the matrices; convolutions, scans and steps of the state are Adder's.

    python examples/transformers_swap.py                                    # a small random model
    python examples/transformers_swap.py state-spaces/mamba-130m-hf "Mamba is"

Needs PyTorch and transformers; without them it says so and ends.
"""

import sys
import time
import types

import adder.compat

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}; this example wants torch and transformers")
    sys.exit(0)

if not hasattr(torch, "_dynamo"):  # transformers 4.48 marks its cache for the compiler of PyTorch 2
    torch._dynamo = types.SimpleNamespace(mark_static_address=lambda tensor: None)


def random_model():
    torch.manual_seed(0)
    config = transformers.MambaConfig(vocab_size=512, hidden_size=256, num_hidden_layers=4)
    return transformers.MambaForCausalLM(config), torch.randint(0, 512, (1, 600))


def model_of(name, prompt):
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    return transformers.MambaForCausalLM.from_pretrained(name), tokenizer(prompt, return_tensors="pt").input_ids


def timed_generate(model, ids):
    start = time.perf_counter()
    # synced_gpus=False: transformers need not ask for a distributed PyTorch, which may be missing.
    out = model.generate(ids, max_new_tokens=24, do_sample=False, synced_gpus=False)
    return out, time.perf_counter() - start


def main():
    model, ids = model_of(*sys.argv[1:3]) if len(sys.argv) > 2 else random_model()
    before, seconds_before = timed_generate(model, ids)
    with adder.compat.install():  # from here on, its mixers call adder.ops
        after, seconds_after = timed_generate(model, ids)
    print(f"transformers alone: {seconds_before:.2f} s, on Adder: {seconds_after:.2f} s")
    if not torch.equal(before, after):
        sys.exit("the tokens differ")
    print("the same", after.shape[1] - ids.shape[1], "tokens")


if __name__ == "__main__":
    main()
