#!/usr/bin/env python3
"""Runs models in Adder and in llama.cpp, from the same GGUF files, and compares the greedy tokens.

For each MODEL: a GGUF file is used as it is; anything else is first written by `adder convert`. Both
programs continue the same ids at temperature 0. Where they part, the gap between the two best logits
of Adder tells whether rounding can be the reason. Exit status 1 if a model's tokens differ.

Needs llama-cpp-python (pip install llama-cpp-python); no test of the repository depends on it.

    tools/check_llama_cpp.py build/release/apps/adder MODEL... [--tokens 1,2,3] [-n 32]
"""
import argparse
import ctypes
import json
import pathlib
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np


def adder(binary, *arguments):
    return subprocess.run([binary, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


class Llama:
    """The C interface, since the high-level class insists on text."""

    def __init__(self, path):
        parameters = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_threads, options.n_threads_batch = 4096, 512, 2, 2
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def feed(self, ids):
        array = (llama_cpp.llama_token * len(ids))(*ids)
        assert llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(ids))) == 0
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, shape=(self.size,)).copy()

    def greedy(self, ids, count, limit):
        first = logits = self.feed(ids)
        out = []
        for _ in range(count):
            out.append(int(np.argmax(logits[:limit])))
            logits = self.feed(out[-1:])
        return out, first

    def tokenize(self, text):
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        n = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, len(ids), False, False)
        return list(ids[:n])


def compare(binary, model, ids, count, text, folder):
    path = pathlib.Path(model)
    if path.suffix != ".gguf":
        path = folder / "model.gguf"
        path.unlink(missing_ok=True)
        adder(binary, "convert", model, path)
    facts = json.loads(adder(binary, "inspect", path, "--json"))
    result = json.loads(adder(binary, "run", path, "--tokens", ",".join(map(str, ids)), "-n", count,
                              "--temp", 0, "--ignore-eos", "--json"))
    ours = result["tokens"]
    llama = Llama(path)
    limit = facts["vocab_size"]
    theirs, first = llama.greedy(ids, count, limit)
    got = json.loads(adder(binary, "logits", path, "--tokens", ",".join(map(str, ids)), "--json"))["logits"][0]
    error = float(np.max(np.abs(np.array(got[:limit]) - first[:limit])))
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), count)
    line = f"{model}: {same} of {count} greedy tokens equal, logits within {error:.2g}"
    if same < count:
        fed = ids + ours[:same]
        row = np.array(json.loads(adder(binary, "logits", path, "--tokens", ",".join(map(str, fed)),
                                        "--json"))["logits"][0][:limit])
        best = np.sort(row)[-2:]
        line += f"; they part where the best two are {best[1] - best[0]:.2g} apart"
    if facts["tokenizer"]:
        mine = json.loads(adder(binary, "tokenize", path, text, "--json"))["ids"]
        line += f"; tokenizer {'equal' if mine == llama.tokenize(text) else 'DIFFERS'}"
        same = same if mine == llama.tokenize(text) else -1
    print(line, flush=True)
    return same == count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("adder")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--tokens", default="5,9,17,4,11,3,8")
    parser.add_argument("-n", type=int, default=32)
    parser.add_argument("--text", default="The snake's  2 adders: 1234 na\u00efve caf\u00e9s\n\tdef x(): # \u00fc")
    parser.add_argument("--verbose", action="store_true", help="llama.cpp's log")
    a = parser.parse_args()
    if not a.verbose:
        quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    ids = [int(i) for i in a.tokens.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        right = [compare(a.adder, m, ids, a.n, a.text, pathlib.Path(folder)) for m in a.models]
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
