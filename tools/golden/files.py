"""Checkpoint files: writers for every dialect and one reader that undoes them.

Weights cross this module as torch tensors because only torch writes pytorch_model.bin and knows bfloat16.
"""

import json
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
KEEP_F32 = re.compile(r"\.(A_log|D)$")


def stored_name(dialect, name):
    """Canonical name -> name in the file."""
    if dialect == "hf":
        return name if name.startswith("lm_head") else "backbone." + name.replace("embedding.", "embeddings.")
    if dialect == "codestral":
        return "model." + (name if name.startswith("lm_head") else "backbone." + name)
    if dialect == "old_port_model":  # block and mixer are one module: no "mixer." level
        return name if name.startswith("lm_head") else "model." + name.replace(".mixer.", ".")
    assert dialect in ("state_spaces", "old_port"), dialect
    return name if name.startswith("lm_head") else "backbone." + name


def canonical_name(name):
    """Name in the file -> canonical name, for all dialects above."""
    name = re.sub(r"^(model\.)?(backbone\.)?", "", name).replace("embeddings.", "embedding.")
    return re.sub(r"^(layers\.\d+\.)(?!norm\.|mixer\.)", r"\1mixer.", name)


def round_to(weights, dtype, ssm_in_f32):
    """numpy float32 dict -> torch dict in the storage dtype (A_log and D may stay float32)."""
    out = OrderedDict()
    for name, array in weights.items():
        keep = ssm_in_f32 and KEEP_F32.search(name)
        out[name] = torch.from_numpy(array).to(torch.float32 if keep else DTYPES[dtype])
    return out


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")  # writes bare Infinity, as transformers does


def _halves(tensors):
    """Two shards of about equal size, in order."""
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    shards, seen = (OrderedDict(), OrderedDict()), 0
    for name, t in tensors.items():
        shards[0 if seen < total // 2 else 1][name] = t
        seen += t.numel() * t.element_size()
    return shards, total


def write_weights(folder, tensors, container):
    """`tensors` has stored names. container: bin, bin_sharded, safetensors, safetensors_sharded or a file name."""
    def save_bin(part, path):
        torch.save(part, path)

    def save_safetensors(part, path):
        part = {k: v.clone().contiguous() for k, v in part.items()}  # no shared storage in this format
        safetensors.torch.save_file(part, str(path), metadata={"format": "pt"})

    single = {
        "bin": ("pytorch_model.bin", save_bin),
        "safetensors": ("model.safetensors", save_safetensors),
        "consolidated": ("consolidated.safetensors", save_safetensors),
    }
    if container in single:
        name, save = single[container]
        save(tensors, folder / name)
        return
    stem, suffix, save = {
        "bin_sharded": ("pytorch_model", "bin", save_bin),
        "safetensors_sharded": ("model", "safetensors", save_safetensors),
    }[container]
    shards, total = _halves(tensors)
    weight_map = {}
    for i, part in enumerate(shards, 1):
        file = f"{stem}-{i:05d}-of-00002.{suffix}"
        save(part, folder / file)
        weight_map.update({name: file for name in part})
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / f"{stem}.{suffix}.index.json", index)


def layout_for_bin(tensors, layout):
    """Storage layouts that real .bin files have and a reader must honour; the values do not change."""
    if layout == "state_dict":  # what torch.save(model.state_dict()) holds
        # Tied head: two names, one storage. _metadata: an attribute, pickled as a BUILD after the items.
        if "lm_head.weight" in tensors:
            (embedding,) = (n for n in tensors if n.endswith("embedding.weight"))
            tensors["lm_head.weight"] = tensors[embedding]
        modules = sorted({""} | {n.rsplit(".", 1)[0] for n in tensors})
        tensors._metadata = OrderedDict((m, {"version": 1}) for m in modules)
    elif layout == "parameters":  # torch.save of a dict of nn.Parameter
        for name in tensors:
            tensors[name] = torch.nn.Parameter(tensors[name], requires_grad=False)
    elif layout == "views":  # transposed in_proj (stride), norm weights inside one storage (offset)
        norms = [n for n in tensors if n.endswith("norm.weight")]
        packed = torch.cat([tensors[n] for n in norms])
        for i, n in enumerate(norms):
            size = tensors[n].numel()
            tensors[n] = packed[i * size : (i + 1) * size]
        for n in tensors:
            if n.endswith("in_proj.weight"):
                tensors[n] = tensors[n].t().contiguous().t()
    else:
        assert layout == "plain", layout
    return tensors


def read_weights(folder):
    """Every tensor of a checkpoint folder under its canonical name, as float64 numpy (exact)."""
    folder = Path(folder)
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors.torch.load_file(str(file)))
    for file in sorted(folder.glob("*.bin")):
        tensors.update(torch.load(file, map_location="cpu"))
    return {canonical_name(n): t.detach().to(torch.float64).numpy() for n, t in tensors.items()}


def _numbers(values, digits):
    return [float(f"{v:.{digits}g}") for v in np.asarray(values, dtype=np.float64).ravel()]


def write_expected(path, prompt, result, row_ids, source, note):
    """expected.json: one key per line, arrays flat. Logits carry 8 digits, states 6 (large ones 5: rounding 5e-5)."""
    def state(a):
        return {"shape": list(a.shape), "data": _numbers(a, 6 if a.size < 4096 else 5)}

    rows = result["rows"]
    fields = {
        "source": source,
        "note": note,
        "vocab_rows": rows.shape[1],
        "prompt": prompt,
        "greedy": result["ids"],
        "greedy_margin": float(f"{min(result['margins']):.6g}"),
        "logits_last": _numbers(rows[-1], 8),
        "logits_rows": {str(i): _numbers(rows[i], 8) for i in row_ids},
        "logits_greedy_last": _numbers(result["last_row"], 8),
        "conv_state_l0": state(result["conv_state"]),
        "ssm_state_l0": state(result["ssm_state"]),
    }
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in fields.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
