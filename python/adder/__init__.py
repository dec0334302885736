"""Adder: a native engine for Mamba state space models.

>>> import adder
>>> model = adder.load()                 # the demo model; or a directory, a file, a pulled repository
>>> print(model.generate("She was the youngest", max_tokens=20, temperature=0))
>>> for piece in model.stream("She was the youngest"):
...     print(piece, end="")
"""

from adder import ops
from adder.engine import Model, load
from adder.generation import Generation, Timings, TokenLogprob
from adder.ops import get_num_threads, set_num_threads
from adder.scoring import Score
from adder.state import State
from adder.stream import Stream
from adder.tokenizer import Tokenizer

__version__ = "0.1.0"
__all__ = [
    "Generation",
    "Model",
    "Score",
    "State",
    "Stream",
    "Timings",
    "TokenLogprob",
    "Tokenizer",
    "get_num_threads",
    "load",
    "ops",
    "set_num_threads",
]
