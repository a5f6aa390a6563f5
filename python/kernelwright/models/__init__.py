"""Language models that the worker runs or asks for the C++ core: in its own memory (`local.py`, with `gguf.py` or
`huggingface.py`) or at the end of a connection (`http_api.py`).
"""
