"""Processes in which candidates live, and nothing that judges them.

`start.py` runs in a Python of its own and becomes the nursery: it has imported PyTorch and forks a process for each
candidate, confined as it is told (`confinement.py`, `system_calls.py`). In that process `resident.py` loads the
candidate and calls it; inputs, weights and outputs pass through memory that the judge owns (`arena.py`). The judge's
side is kernelwright/judge/remote.py.
"""
