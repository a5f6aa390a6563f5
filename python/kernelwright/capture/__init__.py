"""A module in, its graph as JSON out: `export.py` puts it together.

`fake.py` takes the numbers out of the module's tensors, `tracing.py` watches forward, `decompositions.py` keeps
composites whole, `graph_json.py` (with `call_json.py`, `schemas.py`, `access.py`) writes the graph.
"""
