"""Loading a module from a file and calling it: what both sides share, the judge and the candidate's process.

`problem.py` and `candidate.py` load files; `seeding.py`, `state.py` and `settings.py` know what a call depends on and
may change; `guards.py` and `limits.py` watch it.
"""
