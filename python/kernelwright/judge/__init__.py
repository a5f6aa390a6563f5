"""The judge: candidates against eager and the reference in double precision (`verification.py`), and beside eager and
torch.compile on the clock (`measurement.py`, `race.py`).

What candidates are held against is made by `yardstick.py` from the input sets of `draws.py`, `decoys.py`, `buffers.py`;
errors are `metrics.py`'s and `buckets.py`'s. A candidate lives in a process of its own (`nursing.py`, `remote.py`; its
side is kernelwright/host); `hoarding.py` asks whether it holds the GPU's memory that the judge lacks.
"""
