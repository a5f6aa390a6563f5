"""Whether a candidate's process tells the truth about the time that its calls take: the judge's own clock saw each of
them begin and end.
"""

from __future__ import annotations

import statistics

# What the way there and back may take more where a call lies between than where none does: caches are cold, cores
# have gone to sleep.
_ALLOWED_MS = 0.1
_ALLOWED_SHARE = 0.05


class Clocks:
    """Pairs of times of the same stretch, in milliseconds: by the judge's clock, with the way there and back, and by
    the candidate's.
    """

    def __init__(self) -> None:
        self._way: list[float] = []
        self._beyond: list[float] = []
        self._theirs: list[float] = []

    def note(self, judges: float, theirs: float, empty: bool) -> None:
        if empty:
            self._way.append(judges - theirs)
        else:
            self._beyond.append(judges - theirs)
            self._theirs.append(theirs)

    def untold_ms(self) -> float:
        """Milliseconds of a call that the candidate's clock does not show; 0 within what the way there and back may
        explain.
        """
        if not self._way or not self._beyond:
            return 0.0
        # By the call that came back quickest: whoever waits for a core sees the end late.
        untold = min(self._beyond) - statistics.median(self._way)
        return untold if untold > _ALLOWED_MS + _ALLOWED_SHARE * max(0.0, statistics.median(self._theirs)) else 0.0
