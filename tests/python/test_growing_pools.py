"""Pools of threads that grow while they are called, beside threads that every call leaves behind."""

import pytest
from verification_problems import ELEMENTWISE, check, failed_checks  # noqa: F401

POOL = """
import _thread, concurrent.futures, threading, time

def result(x):
    return torch.tanh(x) * 2

class ModelNew(Model):
    def __init__(self):
        super().__init__()
        self.shared = [dict(calls=0, pool=concurrent.futures.ThreadPoolExecutor(6), lock=threading.Lock())]

    def forward(self, x):
        one = self.shared[0]
        one["calls"] += 1
"""

HONEST = {
    # As where one thread of a pool took all tasks of the first two calls, and the other one's first product starts
    # OpenMP's threads.
    "at the third call": """
        if one["calls"] == 3:
            one["lock"].acquire(blocking=False)
            _thread.start_new_thread(one["lock"].acquire, ())
        return result(x)
""",
    "one thread a call, up to six": """
        workers = min(one["calls"], 6)
        ready = threading.Barrier(workers)
        list(one["pool"].map(lambda _: ready.wait(10), range(workers)))
        return result(x)
""",
    "every other call, up to six": """
        workers = min((one["calls"] + 1) // 2, 6)
        ready = threading.Barrier(workers)
        list(one["pool"].map(lambda _: ready.wait(10), range(workers)))
        return result(x)
""",
    # As where the processor is busy: a thread that was joined stands in the table for a moment more.
    "threads that end late": """
        if one["calls"] == 3:
            _thread.start_new_thread(time.sleep, (0.2,))
        return result(x)
""",
}

LEFT_BEHIND = {
    "an idle one by every call": """
        one["lock"].acquire(blocking=False)
        _thread.start_new_thread(one["lock"].acquire, ())
        return result(x)
""",
    "an idle one by two calls of three": """
        if one["calls"] % 3 != 2:
            one["lock"].acquire(blocking=False)
            _thread.start_new_thread(one["lock"].acquire, ())
        return result(x)
""",
    "a sleeping one by the third call": """
        if one["calls"] == 3:
            _thread.start_new_thread(time.sleep, (5,))
        return result(x)
""",
    "a sleeping Python thread by the third call": """
        if one["calls"] == 3:
            threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        return result(x)
""",
    "a Python thread with a deadline by the first call": """
        if one["calls"] == 1:
            threading.Thread(target=threading.Event().wait, args=(5,), daemon=True).start()
        return result(x)
""",
}


@pytest.mark.parametrize("body", HONEST.values(), ids=HONEST.keys())
def test_a_pool_may_grow_until_it_is_complete(check, body):  # noqa: F811
    assert failed_checks(check(ELEMENTWISE, POOL + body, draws=1)) == set()


@pytest.mark.parametrize("body", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
def test_a_thread_left_behind_fails(check, body):  # noqa: F811
    assert failed_checks(check(ELEMENTWISE, POOL + body, draws=1)) == {"no-leftover-work"}
