"""Swell runs training and HPC jobs on the GPUs you have, starts them whole, and always says why.

docs/architecture.md has the picture; each package's first paragraph says what it is for.
"""

__version__ = "0.1.0"
