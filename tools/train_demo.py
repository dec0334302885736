#!/usr/bin/env python3
"""Train, export and measure the demo model: a small byte-level Mamba-2.

    python3 tools/prepare_demo_data.py --out data
    python3 tools/train_demo.py train  --data data --checkpoint demo.pt
    python3 tools/train_demo.py export --checkpoint demo.pt --out models/demo
    python3 tools/train_demo.py eval   --model models/demo --text FILE
    python3 tools/train_demo.py sample --model models/demo --prompt "It was"
    python3 tools/train_demo.py golden --model models/demo

Needs PyTorch 1.13 or later and nothing else.  `train` continues from its checkpoint if there is one.

The batch is a set of parallel streams of text: from one step to the next each
stream goes on where it was and keeps its convolution and SSM states (without
gradient), until it jumps at random to another place and starts from zero.  So
the model meets long contexts as well as cold starts.  A jump writes a zero
byte over the first byte in one case of four, so that zero can serve as the
beginning-of-text mark.

The big matrices learn by Muon (momentum, orthogonalised by Newton-Schulz
iterations), all else by Adam; both rates are
constant after a short warm-up and fall linearly to zero in the last --decay
steps.
"""

import argparse
import json
import math
import os
import random
import struct
import sys
import time

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F

EPS = 1e-5
CONV = 4


# ---------------------------------------------------------------- the model

def rms(x, w):
    return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


class ConvSilu(torch.autograd.Function):
    """silu of the causal depthwise convolution of x (B,T,C), tail (B,3,C) before it."""

    @staticmethod
    def forward(ctx, x, tail, w, bias):
        length = x.shape[1]
        padded = torch.cat([tail, x], 1)
        out = torch.addcmul(bias, padded[:, :length], w[:, 0])
        for k in range(1, CONV):
            out.addcmul_(padded[:, k:k + length], w[:, k])
        ctx.save_for_backward(padded, w, out)
        return F.silu(out)

    @staticmethod
    def backward(ctx, grad):
        padded, w, out = ctx.saved_tensors
        length = out.shape[1]
        grad = torch.ops.aten.silu_backward(grad, out)
        grad_x = grad * w[:, CONV - 1]
        for k in range(CONV - 1):
            shift = CONV - 1 - k
            grad_x[:, :length - shift].addcmul_(grad[:, shift:], w[:, k])
        grad_w = torch.stack([(grad * padded[:, k:k + length]).sum((0, 1)) for k in range(CONV)], 1)
        return grad_x, None, grad_w, grad.sum((0, 1))


class GatedRms(torch.autograd.Function):
    """rms(y * silu(z), w)"""

    @staticmethod
    def forward(ctx, y, z, w):
        gate = F.silu(z)
        v = y * gate
        r = torch.rsqrt(torch.linalg.vector_norm(v, dim=-1, keepdim=True).square_().div_(v.shape[-1]).add_(EPS))
        ctx.save_for_backward(y, z, w, gate, r)
        return v.mul_(r).mul_(w)

    @staticmethod
    def backward(ctx, grad):
        y, z, w, gate, r = ctx.saved_tensors
        u = (y * gate).mul_(r)
        grad_w = (grad * u).sum((0, 1))
        grad = grad * w
        dot = (grad * u).mean(-1, keepdim=True)
        grad.sub_(u.mul_(dot)).mul_(r)
        return grad * gate, torch.ops.aten.silu_backward(grad.mul_(y), z), grad_w


def ssd(x, dt, a, b, c, d, state, chunk):
    """x (B,T,H,P), dt (B,T,H), a and d (H), b and c (B,T,N), state (B,H,P,N) -> y, state."""
    batch, length, heads, dim = x.shape
    n = b.shape[-1]
    m = length // chunk
    x = x.view(batch, m, chunk, heads, dim)
    b = b.reshape(batch, m, chunk, n)
    c = c.reshape(batch, m, chunk, n)
    dt = dt.view(batch, m, chunk, heads).transpose(2, 3)  # B,M,H,Q
    cum = (dt * a.unsqueeze(-1)).cumsum(-1)
    mask = torch.ones(chunk, chunk, dtype=torch.bool).tril()
    diff = cum.unsqueeze(-1) - cum.unsqueeze(-2)
    decay = torch.exp(diff.masked_fill(~mask, -1e30))
    score = torch.matmul(c, b.transpose(2, 3)).unsqueeze(2) * (decay * dt.unsqueeze(-2))  # B,M,H,Q,Q
    score = score + d.view(-1, 1, 1) * torch.eye(chunk, dtype=x.dtype)
    y = torch.matmul(score, x.transpose(2, 3)).transpose(2, 3)  # B,M,Q,H,P
    rest = (torch.exp(cum[..., -1:] - cum) * dt).transpose(2, 3).unsqueeze(-1)  # B,M,Q,H,1
    local = torch.matmul((x * rest).view(batch, m, chunk, heads * dim).transpose(2, 3), b)
    local = local.view(batch, m, heads, dim, n)
    whole = torch.exp(cum[..., -1]).unsqueeze(-1).unsqueeze(-1)  # B,M,H,1,1
    before = []
    for local_i, whole_i in zip(local.unbind(1), whole.unbind(1)):
        before.append(state)
        state = whole_i * state + local_i
    before = torch.stack(before, 1).view(batch, m, heads * dim, n)
    carried = torch.matmul(c, before.transpose(2, 3)).view(batch, m, chunk, heads, dim)
    y = torch.addcmul(y, carried, torch.exp(cum).transpose(2, 3).unsqueeze(-1))
    return y.reshape(batch, length, heads, dim), state


def layer(h, tail, state, norm, w_z, w_x, w_bc, w_dt, conv_w, conv_b, dt_bias, a_log, d, gate_norm,
          w_out, chunk):
    """One residual block; tail (B,3,C) holds the last inputs of the convolution."""
    batch, length, _ = h.shape
    heads, inner, n = a_log.shape[0], w_z.shape[0], w_bc.shape[0] // 2
    r = rms(h, norm)
    z, xbc, dt = F.linear(r, torch.cat([w_z, w_x, w_bc, w_dt])).split([inner, inner + 2 * n, heads], -1)
    conv = ConvSilu.apply(xbc, tail, conv_w, conv_b)
    tail = torch.cat([tail, xbc.detach()], 1)[:, -(CONV - 1):]
    x, b, c = conv.split([inner, n, n], -1)
    x = x.reshape(batch, length, heads, inner // heads)
    dt = F.softplus(dt + dt_bias)
    y, state = ssd(x, dt, -torch.exp(a_log), b, c, d, state, chunk)
    y = GatedRms.apply(y.view(batch, length, inner), z, gate_norm)
    return h + F.linear(y, w_out), tail, state


NAMES = ["norm", "w_z", "w_x", "w_bc", "w_dt", "conv_w", "conv_b", "dt_bias", "a_log", "d", "gate_norm", "w_out"]
MATRICES = ["w_z", "w_x", "w_bc", "w_out"]


class Model:
    def __init__(self, width, layers, state, head_dim, chunk):
        self.shape = dict(width=width, layers=layers, state=state, head_dim=head_dim, chunk=chunk)
        self.inner = 2 * width
        self.heads = self.inner // head_dim
        self.layer = layer
        self.params = {}

    def init(self):
        width, inner, heads, n = self.shape["width"], self.inner, self.heads, self.shape["state"]
        p = self.params
        p["embeddings"] = torch.randn(256, width) * 0.04
        p["norm_f"] = torch.ones(width)
        for i in range(self.shape["layers"]):
            dt = torch.exp(torch.rand(heads) * (math.log(0.2) - math.log(0.002)) + math.log(0.002))
            values = dict(
                norm=torch.ones(width),
                w_z=torch.randn(inner, width) * width ** -0.5,
                w_x=torch.randn(inner, width) * width ** -0.5,
                w_bc=torch.randn(2 * n, width) * width ** -0.5,
                w_dt=torch.randn(heads, width) * 0.1 * width ** -0.5,
                conv_w=(torch.rand(inner + 2 * n, CONV) * 2 - 1) * CONV ** -0.5,
                conv_b=torch.zeros(inner + 2 * n),
                dt_bias=dt + torch.log(-torch.expm1(-dt)),
                a_log=torch.log(1 + 7 * torch.rand(heads)),
                d=torch.ones(heads),
                gate_norm=torch.ones(inner),
                w_out=torch.randn(width, inner) * 0.3 * inner ** -0.5,
            )
            for name in NAMES:
                p["%d.%s" % (i, name)] = values[name]
        return self

    def zero_states(self, batch, dtype=torch.float32):
        channels = self.inner + 2 * self.shape["state"]
        return [(torch.zeros(batch, CONV - 1, channels, dtype=dtype),
                 torch.zeros(batch, self.heads, self.shape["head_dim"], self.shape["state"], dtype=dtype))
                for _ in range(self.shape["layers"])]

    def forward(self, ids, states, chunk=None):
        p = self.params
        h = F.embedding(ids, p["embeddings"])
        out = []
        for i, (tail, state) in enumerate(states):
            args = [p["%d.%s" % (i, name)] for name in NAMES]
            h, tail, state = self.layer(h, tail, state, *args, chunk or self.shape["chunk"])
            out.append((tail, state))
        return F.linear(rms(h, p["norm_f"]), p["embeddings"]), out


# ---------------------------------------------------------------- the streams

class Streams:
    def __init__(self, folder, batch, length, jump, seed, weights=None):
        with open(os.path.join(folder, "manifest.json")) as f:
            manifest = json.load(f)
        self.texts = []
        for entry in manifest:
            with open(os.path.join(folder, entry["file"]), "rb") as f:
                self.texts.append(f.read())
        self.weights = [entry["weight"] for entry in manifest] if weights is None else weights
        if len(self.weights) != len(self.texts):
            raise SystemExit("expected %d weights, one per file of the manifest" % len(self.texts))
        self.length, self.jump = length, jump
        self.rng = random.Random(seed)
        self.at = [None] * batch

    def place(self):
        """A random place after an empty line, a full stop or any blank, in this order."""
        i = self.rng.choices(range(len(self.texts)), self.weights)[0]
        text = self.texts[i]
        pos = self.rng.randrange(len(text) - 4 * self.length)
        for mark, reach in ((b"\n\n", 1000), (b". ", 400), (b" ", 100)):
            found = text.find(mark, pos, pos + reach)
            if found >= 0:
                pos = found + len(mark)
                break
        return [i, pos]

    def next(self):
        rows, fresh = [], []
        for k, at in enumerate(self.at):
            new = at is None or self.rng.random() < self.jump or at[1] + self.length + 1 > len(self.texts[at[0]])
            if new:
                at = self.at[k] = self.place()
            row = bytearray(self.texts[at[0]][at[1]:at[1] + self.length + 1])
            if new and self.rng.random() < 0.25:
                row[0] = 0
            at[1] += self.length
            rows.append(torch.frombuffer(row, dtype=torch.uint8).long())
            fresh.append(0.0 if new else 1.0)
        rows = torch.stack(rows)
        return rows[:, :-1], rows[:, 1:], torch.tensor(fresh)

    def state_dict(self):
        return dict(at=self.at, rng=self.rng.getstate())

    def load(self, d):
        self.at = [list(a) for a in d["at"]]
        v, words, g = d["rng"]
        self.rng.setstate((v, tuple(words), g))


# ---------------------------------------------------------------- the optimiser

@torch.no_grad()
def orthogonalise(m, steps=5):
    """Newton-Schulz on a stack of matrices with no fewer rows than columns."""
    x = m / (m.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(steps):
        g = torch.bmm(x.transpose(1, 2), x)
        g2 = torch.baddbmm(g, g, g, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, x, g2, beta=3.4445)
    return x


class Muon:
    def __init__(self, params, momentum=0.95):
        self.momentum = momentum
        self.groups = {}
        for p in params:
            self.groups.setdefault(tuple(sorted(p.shape)), []).append(p)
        self.buffers = {k: torch.zeros(len(v), k[1], k[0]) for k, v in self.groups.items()}

    @torch.no_grad()
    def step(self, lr, pool, workers):
        for key, params in self.groups.items():
            tall = [p.shape[0] >= p.shape[1] for p in params]
            grad = torch.stack([p.grad if t else p.grad.t() for p, t in zip(params, tall)])
            buffer = self.buffers[key]
            buffer.mul_(self.momentum).add_(grad, alpha=1 - self.momentum)
            parts = grad.mul_(1 - self.momentum).add_(buffer, alpha=self.momentum).chunk(workers)
            update = torch.cat(list(pool.map(orthogonalise, parts)))
            for p, t, u in zip(params, tall, update):
                rows, cols = p.shape
                p.add_(u if t else u.t(), alpha=-lr * max(1.0, rows / cols) ** 0.5)


def schedule(step, steps, warmup, decay):
    return min((step + 1) / warmup, 1.0, (steps - step) / decay)


def load_checkpoint(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except TypeError:
        return torch.load(path, map_location="cpu")


def train(args):
    torch.manual_seed(args.seed)
    # one thread per worker and no thread inside an operation: few waits, so a busy machine costs little
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(args.workers, initializer=torch.set_num_threads, initargs=(1,))
    model = Model(args.width, args.layers, args.state, args.head_dim, args.chunk).init()
    streams = Streams(args.data, args.batch, args.length, args.jump, args.seed, args.weights)
    states = [model.zero_states(args.batch // args.workers) for _ in range(args.workers)]
    saved = load_checkpoint(args.checkpoint) if args.checkpoint and os.path.exists(args.checkpoint) else None
    if saved:
        if saved["shape"] != model.shape:
            raise SystemExit("the checkpoint has another shape: %s" % saved["shape"])
        model.params = saved["params"]
    for p in model.params.values():
        p.requires_grad_(True)
    muon_params = [p for name, p in model.params.items() if name.split(".")[-1] in MATRICES]
    muon = Muon(muon_params)
    others = [p for name, p in model.params.items() if name.split(".")[-1] not in MATRICES]
    adam = torch.optim.Adam(others, lr=args.lr, betas=(0.9, 0.95), eps=1e-10)
    step, loss_ema = 0, None
    if saved:
        muon.buffers = saved["muon"]
        adam.load_state_dict(saved["adam"])
        streams.load(saved["streams"])
        states = saved["states"]
        step, loss_ema = saved["step"], saved["loss"]
    print("%d parameters, %d steps of %d bytes" % (sum(p.numel() for p in model.params.values()), args.steps,
                                                   args.batch * args.length), flush=True)

    def save():
        if not args.checkpoint:
            return
        torch.save(dict(shape=model.shape, params={k: v.detach() for k, v in model.params.items()},
                        muon=muon.buffers, adam=adam.state_dict(), streams=streams.state_dict(), states=states,
                        step=step, loss=loss_ema, seed=args.seed, batch=args.batch, length=args.length,
                        steps=args.steps), args.checkpoint + ".tmp")
        os.replace(args.checkpoint + ".tmp", args.checkpoint)

    def share(ids, targets, keep, states):
        states = [(t * keep.view(-1, 1, 1), s * keep.view(-1, 1, 1, 1)) for t, s in states]
        logits, states = model.forward(ids, states)
        loss = F.cross_entropy(logits.view(-1, 256), targets.reshape(-1))
        grads = torch.autograd.grad(loss, list(model.params.values()))
        return loss.item(), [(t.detach(), s.detach()) for t, s in states], dict(zip(model.params, grads))

    begin, first, last_save = time.time(), step, time.time()
    shown, recent, shown_at = step, [], time.time()
    while step < args.steps:
        ids, targets, keep = (t.chunk(args.workers) for t in streams.next())
        parts = list(pool.map(share, ids, targets, keep, states))
        states = [part[1] for part in parts]
        for name, p in model.params.items():
            p.grad = sum(part[2][name] for part in parts) / args.workers
        scale = schedule(step, args.steps, args.warmup, args.decay)
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for group in adam.param_groups:
            group["lr"] = args.lr * scale
        adam.step()
        muon.step(args.muon_lr * scale, pool, args.workers)
        for p in model.params.values():
            p.grad = None
        step += 1
        bits = sum(part[0] for part in parts) / args.workers / math.log(2)
        if not math.isfinite(bits):
            raise SystemExit("the loss is not finite at step %d" % step)
        recent.append(bits)
        loss_ema = bits if loss_ema is None else loss_ema + 0.01 * (bits - loss_ema)
        if step % args.log == 0 or step == args.steps:
            now = time.time()
            rate = (step - shown) * args.batch * args.length / (now - shown_at)
            print("step %5d  bits/byte %.4f  rate %.5f  %.0f byte/s  %.0f s" % (
                step, sum(recent) / len(recent), args.muon_lr * scale, rate, now - begin), flush=True)
            shown, recent, shown_at = step, [], now
        if time.time() - last_save > args.save_every:
            save()
            last_save = time.time()
        if args.seconds and time.time() - begin > args.seconds:
            break
    save()
    print("%d steps in %.0f s" % (step - first, time.time() - begin))


# ---------------------------------------------------------------- files

def bf16_bytes(t):
    """Round to nearest, ties to even."""
    return bytes(t.detach().contiguous().to(torch.bfloat16).view(torch.int16).numpy().tobytes())


def export(args):
    saved = load_checkpoint(args.checkpoint)
    shape, p = saved["shape"], saved["params"]
    tensors = [("backbone.embeddings.weight", p["embeddings"], "BF16")]
    for i in range(shape["layers"]):
        def get(name):
            return p["%d.%s" % (i, name)]
        at = "backbone.layers.%d." % i
        tensors += [
            (at + "norm.weight", get("norm"), "F32"),
            (at + "mixer.in_proj.weight", torch.cat([get("w_z"), get("w_x"), get("w_bc"), get("w_dt")]), "BF16"),
            (at + "mixer.conv1d.weight", get("conv_w").unsqueeze(1), "F32"),
            (at + "mixer.conv1d.bias", get("conv_b"), "F32"),
            (at + "mixer.dt_bias", get("dt_bias"), "F32"),
            (at + "mixer.A_log", get("a_log"), "F32"),
            (at + "mixer.D", get("d"), "F32"),
            (at + "mixer.norm.weight", get("gate_norm"), "F32"),
            (at + "mixer.out_proj.weight", get("w_out"), "BF16"),
        ]
    tensors.append(("backbone.norm_f.weight", p["norm_f"], "F32"))
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    # the widest elements first, so that each tensor is aligned
    for name, t, kind in sorted(tensors, key=lambda item: item[2] != "F32"):
        blob = bf16_bytes(t) if kind == "BF16" else t.detach().contiguous().float().numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "model.safetensors")
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    os.replace(path + ".tmp", path)
    config = {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "vocab_size": 256,
        "hidden_size": shape["width"],
        "num_hidden_layers": shape["layers"],
        "state_size": shape["state"],
        "num_heads": 2 * shape["width"] // shape["head_dim"],
        "head_dim": shape["head_dim"],
        "n_groups": 1,
        "expand": 2,
        "conv_kernel": CONV,
        "chunk_size": shape["chunk"],
        "hidden_act": "silu",
        "layer_norm_epsilon": EPS,
        "rms_norm": True,
        "residual_in_fp32": True,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": True,
        "time_step_limit": [0.0, float("inf")],
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "tokenizer": "bytes",
        "torch_dtype": "bfloat16",
    }
    with open(os.path.join(args.out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    print("step %d: %d parameters, %d bytes" % (saved["step"], sum(t.numel() for _, t, _ in tensors),
                                              os.path.getsize(path)))


def load_model(folder, dtype=torch.float32):
    """The model from its exported files, so with rounded weights."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = f.read()
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(bytearray(data[begin:end]), dtype=kinds[entry["dtype"]])
            tensors[name] = flat.view(entry["shape"]).to(dtype)
    model = Model(config["hidden_size"], config["num_hidden_layers"], config["state_size"], config["head_dim"],
                  config["chunk_size"])
    p, inner, heads = model.params, model.inner, model.heads
    p["embeddings"] = tensors["backbone.embeddings.weight"]
    p["norm_f"] = tensors["backbone.norm_f.weight"]
    for i in range(config["num_hidden_layers"]):
        at = "backbone.layers.%d." % i
        w = tensors[at + "mixer.in_proj.weight"]
        values = dict(norm=tensors[at + "norm.weight"], w_z=w[:inner], w_x=w[inner:2 * inner],
                      w_bc=w[2 * inner:-heads], w_dt=w[-heads:],
                      conv_w=tensors[at + "mixer.conv1d.weight"].squeeze(1), conv_b=tensors[at + "mixer.conv1d.bias"],
                      dt_bias=tensors[at + "mixer.dt_bias"], a_log=tensors[at + "mixer.A_log"],
                      d=tensors[at + "mixer.D"], gate_norm=tensors[at + "mixer.norm.weight"],
                      w_out=tensors[at + "mixer.out_proj.weight"])
        for name in NAMES:
            p["%d.%s" % (i, name)] = values[name]
    return model


# ---------------------------------------------------------------- use

@torch.no_grad()
def evaluate(args):
    """Bits per byte of the whole file read once as one sequence from zero states.

    Byte t is predicted from bytes 0..t-1; the first byte is predicted from a zero byte.
    """
    model = load_model(args.model)
    with open(args.text, "rb") as f:
        text = b"\0" + f.read()
    chunk = model.shape["chunk"]
    states, total, done = model.zero_states(1), 0.0, 0
    ids = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    count = len(ids) - 1
    step = chunk * max(1, 4096 // chunk)
    while done < count:
        n = min(step, count - done)
        size = chunk if n >= chunk else 1
        n -= n % size
        logits, states = model.forward(ids[done:done + n].view(1, -1), states, size)
        total += F.cross_entropy(logits[0].double(), ids[done + 1:done + n + 1], reduction="sum").item()
        done += n
        if args.limit and done >= args.limit:
            break
    print("%d bytes, %.4f bits per byte, perplexity per byte %.4f" % (
        done, total / done / math.log(2), math.exp(total / done)))


@torch.no_grad()
def prefill(model, ids, dtype=torch.float32):
    return model.forward(torch.tensor([list(ids)]), model.zero_states(1, dtype), 1)


@torch.no_grad()
def sample(args):
    torch.manual_seed(args.seed)
    model = load_model(args.model)
    for prompt in args.prompt:
        out = bytearray(prompt.encode())
        logits, states = prefill(model, out)
        for _ in range(args.count):
            if args.temperature > 0:
                token = torch.multinomial(F.softmax(logits[0, -1] / args.temperature, -1), 1).item()
            else:
                token = logits[0, -1].argmax().item()
            if token == 0:
                break
            out.append(token)
            logits, states = model.forward(torch.tensor([[token]]), states, 1)
        print(out.decode("utf-8", "replace"))
        print("-" * 72)


@torch.no_grad()
def golden(args):
    """Logits after a fixed prompt and greedy bytes, in float64 from the exported weights."""
    model = load_model(args.model, torch.float64)
    prompt = "It was not a subject on which she could speak with composure; an"
    ids = list(prompt.encode())
    assert len(ids) == 64
    logits, states = prefill(model, ids, torch.float64)
    last, greedy, margin = logits[0, -1], [], float("inf")
    row = last
    for _ in range(40):
        top = row.topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
        out, states = model.forward(torch.tensor([[greedy[-1]]]), states, 1)
        row = out[0, -1]
    result = {"prompt": prompt, "ids": ids, "logits_last": [float("%.9g" % v) for v in last.tolist()],
              "greedy": greedy, "greedy_text": bytes(greedy).decode("latin-1"),
              "greedy_smallest_margin": round(margin, 6), "computed_in": "float64 from the exported weights"}
    with open(os.path.join(args.model, "golden.json"), "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(repr(result["greedy_text"]), "smallest margin", margin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("train")
    p.add_argument("--data", default="data")
    p.add_argument("--checkpoint", default="")
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--state", type=int, default=32)
    p.add_argument("--head-dim", type=int, default=64)
    p.add_argument("--chunk", type=int, default=32)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--jump", type=float, default=0.06)
    p.add_argument("--steps", type=int, default=1700)
    p.add_argument("--decay", type=int, default=703, help="the last steps, in which the rates fall to zero")
    p.add_argument("--warmup", type=int, default=60)
    p.add_argument("--lr", type=float, default=0.004)
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--weights", type=float, nargs="+", help="sampling weights instead of the manifest's, in its order")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--log", type=int, default=50)
    p.add_argument("--save-every", type=float, default=120, help="seconds between checkpoints")
    p.add_argument("--seconds", type=float, default=0, help="stop after this time; 0 = never")
    p.set_defaults(run=train)
    p = commands.add_parser("export")
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--out", required=True)
    p.set_defaults(run=export)
    p = commands.add_parser("eval")
    p.add_argument("--model", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--limit", type=int, default=0)
    p.set_defaults(run=evaluate)
    p = commands.add_parser("sample")
    p.add_argument("--model", required=True)
    p.add_argument("--prompt", action="append", required=True)
    p.add_argument("--count", type=int, default=400)
    p.add_argument("--temperature", type=float, default=0.7)
    p.add_argument("--seed", type=int, default=1)
    p.set_defaults(run=sample)
    p = commands.add_parser("golden")
    p.add_argument("--model", required=True)
    p.set_defaults(run=golden)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
