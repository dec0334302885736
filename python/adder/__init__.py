"""Adder: a native engine for Mamba state space models.

>>> model = adder.load()                 # the demo model; or a directory, a file, a pulled repository
>>> model.generate("She was the youngest", max_tokens=20, temperature=0)
"""

from adder import ops
from adder.engine import Model, load
from adder.ops import get_num_threads, set_num_threads

__version__ = "0.1.0"
__all__ = ["Model", "get_num_threads", "load", "ops", "set_num_threads"]
