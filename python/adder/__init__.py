"""Adder: a native engine for Mamba state space models.

>>> model = adder.load()                 # the demo model; or a directory, a file, a pulled repository
>>> model.generate("She was the youngest", max_tokens=20, temperature=0)
"""

from adder.engine import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "load"]
