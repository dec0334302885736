"""The oracle: Mamba-1 and Mamba-2 language models, one token at a time, in float64 numpy.

It follows the recurrences of the papers word for word and shares no code with Adder. Weights come as a
dict of arrays named as in state-spaces/mamba without the "backbone." prefix ("layers.0.mixer.A_log").
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """What the forward pass must know beyond the shapes of the weights."""

    family: int  # 1 or 2
    d_model: int
    n_layer: int
    d_inner: int
    d_state: int
    d_conv: int
    vocab: int  # rows of the embedding, padding included
    dt_rank: int = 0  # Mamba-1
    n_heads: int = 0  # Mamba-2
    n_groups: int = 1  # Mamba-2
    eps: float = 1e-5
    mixer_rms_eps: float = 0.0  # > 0: weightless RMS norm of dt, B, C (Falcon-Mamba)
    dt_limit: tuple = (0.0, float("inf"))  # Mamba-2
    gated_norm: bool = True  # Mamba-2; False: y * silu(z) without a norm
    d_has_hdim: bool = False  # Mamba-2; True: D has one value per channel

    @property
    def headdim(self):
        return self.d_inner // self.n_heads

    @property
    def conv_channels(self):
        return self.d_inner + (2 * self.n_groups * self.d_state if self.family == 2 else 0)

    @property
    def in_proj_rows(self):
        if self.family == 1:
            return 2 * self.d_inner
        return 2 * self.d_inner + 2 * self.n_groups * self.d_state + self.n_heads

    @property
    def ssm_state_shape(self):
        if self.family == 1:
            return (self.d_inner, self.d_state)
        return (self.n_heads, self.headdim, self.d_state)


def silu(v):
    return v / (1.0 + np.exp(-v))


def softplus(v):
    return np.logaddexp(0.0, v)


def rms(x, eps):
    """x / sqrt(mean(x^2) + eps) over the last axis, no weight."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


class Oracle:
    def __init__(self, shape, weights):
        self.s = shape
        self.w = {k: np.asarray(v, dtype=np.float64) for k, v in weights.items()}
        self.head = self.w.get("lm_head.weight", self.w["embedding.weight"])

    def new_state(self):
        """Per layer: conv_state (channels, d_conv-1), oldest input first, and the SSM state."""
        s = self.s
        return [
            [np.zeros((s.conv_channels, s.d_conv - 1)), np.zeros(s.ssm_state_shape)]
            for _ in range(s.n_layer)
        ]

    def step(self, token, state):
        """Feed one token, update `state` in place, return the logits (vocab,)."""
        r = self.w["embedding.weight"][token].copy()
        mixer = self._mamba1 if self.s.family == 1 else self._mamba2
        for i in range(self.s.n_layer):
            h = rms(r, self.s.eps) * self.w[f"layers.{i}.norm.weight"]
            r = r + mixer(f"layers.{i}.mixer.", h, state[i])
        return self.head @ (rms(r, self.s.eps) * self.w["norm_f.weight"])

    def forward(self, tokens, state=None):
        """Logits of every position (len(tokens), vocab)."""
        state = self.new_state() if state is None else state
        return np.stack([self.step(t, state) for t in tokens])

    def _linear(self, name, x):
        y = self.w[name + ".weight"] @ x
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def _conv(self, name, x, layer_state):
        window = np.concatenate([layer_state[0], x[:, None]], axis=1)  # oldest first
        layer_state[0] = window[:, 1:]
        y = np.sum(window * self.w[name + ".weight"][:, 0, :], axis=1)
        if name + ".bias" in self.w:
            y = y + self.w[name + ".bias"]
        return silu(y)

    def _mamba1(self, p, h, layer_state):
        s = self.s
        x, z = np.split(self._linear(p + "in_proj", h), 2)
        u = self._conv(p + "conv1d", x, layer_state)
        dt, B, C = np.split(self.w[p + "x_proj.weight"] @ u, [s.dt_rank, s.dt_rank + s.d_state])
        if s.mixer_rms_eps > 0:
            dt, B, C = (rms(v, s.mixer_rms_eps) for v in (dt, B, C))
        dt = softplus(self._linear(p + "dt_proj", dt))  # (d_inner)
        A = -np.exp(self.w[p + "A_log"])  # (d_inner, d_state)
        S = np.exp(dt[:, None] * A) * layer_state[1] + (dt * u)[:, None] * B[None, :]
        layer_state[1] = S
        y = S @ C + self.w[p + "D"] * u
        return self._linear(p + "out_proj", y * silu(z))

    def _mamba2(self, p, h, layer_state):
        s = self.s
        E, GN, H, P = s.d_inner, s.n_groups * s.d_state, s.n_heads, s.headdim
        z, xbc, dt = np.split(self._linear(p + "in_proj", h), [E, 2 * E + 2 * GN])
        x, B, C = np.split(self._conv(p + "conv1d", xbc, layer_state), [E, E + GN])
        x = x.reshape(H, P)
        # Head h reads group h / (H/G): blocks of heads, not interleaved.
        B = np.repeat(B.reshape(s.n_groups, s.d_state), H // s.n_groups, axis=0)
        C = np.repeat(C.reshape(s.n_groups, s.d_state), H // s.n_groups, axis=0)
        dt = np.clip(softplus(dt + self.w[p + "dt_bias"]), *s.dt_limit)  # clamp after softplus
        decay = np.exp(-np.exp(self.w[p + "A_log"]) * dt)  # (heads)
        S = decay[:, None, None] * layer_state[1] + (dt[:, None] * x)[:, :, None] * B[:, None, :]
        layer_state[1] = S
        D = self.w[p + "D"].reshape(H, P if s.d_has_hdim else 1)
        y = (np.einsum("hpn,hn->hp", S, C) + D * x).reshape(E)
        y = y * silu(z)  # the gate comes before the norm
        if s.gated_norm:
            y = rms(y.reshape(s.n_groups, -1), s.eps).reshape(E) * self.w[p + "norm.weight"]
        return self._linear(p + "out_proj", y)


def greedy(oracle, prompt, count):
    """Prefill, then `count` greedy ids. Returns what expected.json needs."""
    state = oracle.new_state()
    rows = oracle.forward(prompt, state)
    first_layer = [state[0][0].copy(), state[0][1].copy()]
    ids, margins, row = [], [], rows[-1]
    for i in range(count):
        best = int(np.argmax(row))
        top2 = np.partition(row, -2)[-2:]
        ids.append(best)
        margins.append(float(top2[1] - top2[0]))
        if i + 1 < count:
            row = oracle.step(best, state)
    return {
        "rows": rows,
        "ids": ids,
        "margins": margins,
        "last_row": row,  # the logits that chose ids[-1]
        "conv_state": first_layer[0],
        "ssm_state": first_layer[1],
    }
