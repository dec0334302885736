"""One measurement of llama.cpp through its C API: load, prompt, decode, memory. Run by run.py.

Prints one JSON object. Its threads are placed one per core with a thread pool of ggml, because they
share a core otherwise on some machines. The next token is the argmax of the logits (NumPy), as with
`adder bench --temp 0`; logits are asked for where a token is taken, nowhere else.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import resource
import sys
import time

import llama_cpp as llama
import numpy as np

MAX_THREADS = 512  # GGML_MAX_N_THREADS
METADATA_BYTES = 16 << 20  # the tokenizer's key, if any, is well within


class ThreadpoolParams(ctypes.Structure):  # struct ggml_threadpool_params
    _fields_ = [("cpumask", ctypes.c_bool * MAX_THREADS), ("n_threads", ctypes.c_int), ("prio", ctypes.c_int),
                ("poll", ctypes.c_uint32), ("strict_cpu", ctypes.c_bool), ("paused", ctypes.c_bool)]


def library(name):
    found = sorted((pathlib.Path(llama.__file__).parent / "lib").glob(f"lib{name}.*"))
    if not found:
        sys.exit(f"llama_cpp: expected lib{name} in its package, found none")
    return ctypes.CDLL(str(found[0]))


def place_threads(context, cores):
    """One thread of llama.cpp on each of these cores and nowhere else."""
    base, cpu, main = library("ggml-base"), library("ggml-cpu"), library("llama")
    base.ggml_threadpool_params_init.argtypes = [ctypes.POINTER(ThreadpoolParams), ctypes.c_int]
    params = ThreadpoolParams()
    base.ggml_threadpool_params_init(ctypes.byref(params), len(cores))
    if params.n_threads != len(cores) or params.poll > 100:
        sys.exit(f"llama.cpp {llama.__version__}: expected the known layout of ggml_threadpool_params")
    for core in cores:
        params.cpumask[core] = True
    params.strict_cpu = True
    cpu.ggml_threadpool_new.argtypes = [ctypes.POINTER(ThreadpoolParams)]
    cpu.ggml_threadpool_new.restype = ctypes.c_void_p
    pool = cpu.ggml_threadpool_new(ctypes.byref(params))
    if not pool:
        sys.exit("llama.cpp: ggml_threadpool_new failed")
    main.llama_attach_threadpool.argtypes = [ctypes.c_void_p] * 3
    main.llama_attach_threadpool(context, pool, pool)


def load_model(path):
    params = llama.llama_model_default_params()  # mapped, repacked, no GPU: as it defaults
    with open(path, "rb") as file:
        has_tokenizer = b"tokenizer.ggml.model" in file.read(METADATA_BYTES)
    if not has_tokenizer:
        overrides = (llama.llama_model_kv_override * 2)()  # the last is zeros: the end
        overrides[0].key = b"tokenizer.ggml.model"
        overrides[0].tag = llama.LLAMA_KV_OVERRIDE_TYPE_STR
        overrides[0].value.val_str = b"none"
        params.kv_overrides = overrides
    model = llama.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        sys.exit(f"{path}: llama.cpp refuses it")
    return model


class Peer:
    def __init__(self, path, cores, sequences, prompt):
        begin = time.perf_counter()
        self.model = load_model(path)
        params = llama.llama_context_default_params()
        params.n_ctx = 1 << 14
        params.n_batch = max(prompt, sequences)
        params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = len(cores)
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"{path}: llama.cpp makes no context")
        place_threads(self.context, cores)
        self.load_s = time.perf_counter() - begin
        self.vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.memory = llama.llama_get_memory(self.context)
        self.batch = llama.llama_batch_init(max(prompt, sequences), 0, 1)
        self.views = {}

    def process(self, entries):
        """entries: (id, position, sequence, whether its logits are wanted)"""
        b = self.batch
        b.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, wanted
            b.seq_id[i][0] = sequence
        status = llama.llama_decode(self.context, b)
        if status != 0:
            sys.exit(f"llama_decode: expected 0, got {status}")

    def logits(self, rows):
        """Of the last call, as a view: [rows, vocab]"""
        values = llama.llama_get_logits(self.context)  # waits for the result
        key = ctypes.addressof(values.contents), rows
        if key not in self.views:  # making one takes longer than the argmax
            self.views[key] = np.ctypeslib.as_array(values, (rows, self.vocab))
        return self.views[key]

    def prompt(self, ids, all_logits=False):
        """Empties the memory and reads ids as sequence 0."""
        llama.llama_memory_clear(self.memory, True)
        last = len(ids) - 1
        self.process([(t, i, 0, all_logits or i == last) for i, t in enumerate(ids)])
        return self.logits(len(ids) if all_logits else 1)

    def generate(self, first, position, steps, sequences):
        """Tokens of sequence 0; sequences > 1: the others start from its state with the same token."""
        for s in range(1, sequences):
            llama.llama_memory_seq_cp(self.memory, 0, s, -1, -1)
        tokens, out = [first] * sequences, []
        for step in range(steps):
            self.process([(t, position + step, s, True) for s, t in enumerate(tokens)])
            tokens = self.logits(sequences).argmax(axis=1).tolist()
            out.append(tokens[0])
        return out


def measure(args):
    peer = Peer(args.model, args.cores, args.sequences, args.prompt)
    rng = random.Random(0)
    ids = [rng.randrange(peer.vocab) for _ in range(args.prompt)]
    result = {}
    for _ in range(2):  # the first is the warm-up
        begin = time.perf_counter()
        first = int(peer.prompt(ids)[0].argmax())
        result["prefill_s"] = time.perf_counter() - begin
        begin = time.perf_counter()
        peer.generate(first, args.prompt, args.gen, args.sequences)
        result["decode_s"] = time.perf_counter() - begin
    result["load_s"] = peer.load_s
    result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result


def compare(args):
    """Logits of every position of a prompt to --out, greedy tokens after it as result."""
    peer = Peer(args.model, args.cores, 1, len(args.tokens))
    logits = peer.prompt(args.tokens, all_logits=True)
    np.save(args.out, logits)
    first = int(logits[-1].argmax())
    return {"tokens": [first] + peer.generate(first, len(args.tokens), args.gen - 1, 1)}


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--cores", type=numbers, required=True)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--tokens", type=numbers, help="compare instead of measure")
    parser.add_argument("--out", help="with --tokens: file for the logits")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if not args.verbose:
        silent = llama.llama_log_callback(lambda level, text, data: None)  # alive until the end
        llama.llama_log_set(silent, None)
    llama.llama_backend_init()
    print(json.dumps(compare(args) if args.tokens else measure(args)))


if __name__ == "__main__":
    main()
