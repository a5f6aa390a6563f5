"""The summary of a harvest: shares, faults by their reasons, and what the planner knows that no problem met."""

from __future__ import annotations

import collections
import re
from typing import Any, Iterable

from .check import OUTCOMES
from .operators import known_names

Record = dict[str, Any]
_UNCOUNTED = ("no problem", "torch.export refuses")


def summary(records: list[Record], versions: dict[str, str]) -> str:
    lines = ["packages: " + ", ".join(f"{name} {version}" for name, version in versions.items()), ""]
    lines += _table(records)
    lines += _by_reason("refused, by name", [one for one in records if one["outcome"] == "refused"])
    lines += _by_reason("faults", [one for one in records if one["outcome"] in OUTCOMES[5:]])
    lines += _by_reason("the judge fails eager itself", [one for one in records if one["outcome"] == "judge"])
    lines += _by_reason(
        "wrong candidates of verified problems",
        [one | {"detail": _reasons(one)} for one in records if one["outcome"] == "verified" and one["wrong"]],
    )
    known = known_names()
    met = {re.sub(r"^aten\.(\w+)\..*$", r"\1", op) for one in records for op in one.get("ops", [])}
    called = met | {
        one["name"].split("/")[1].partition(".")[0]
        for one in records
        if one["name"].startswith(("aten/", "op/")) and one["outcome"] != "no problem"
    }
    missing = [name for name in known if name not in called]
    lines += [
        "",
        f"operators that the planner knows: {len(known)}, called here: {len(known) - len(missing)}; "
        f"not called: {' '.join(missing) or 'none'}",
    ]
    return "\n".join(lines) + "\n"


def _table(records: list[Record]) -> list[str]:
    sources = sorted({_source(one) for one in records})
    columns = [
        "problems",
        "exported",
        "verified",
        "share",
        "first wrong",
        "any wrong",
        "refused",
        "internal",
        "crashed",
        "time limit",
        "unverified",
        "judge",
    ]
    rows = [["source", *columns]]
    for source in [*sources, "all"]:
        mine = [one for one in records if source in ("all", _source(one)) and one["outcome"] != "no problem"]
        exported = [one for one in mine if one["outcome"] not in _UNCOUNTED]
        count = collections.Counter(one["outcome"] for one in mine)
        share = f"{100 * count['verified'] / len(exported):.1f} %" if exported else "-"
        first, any_wrong = (
            sum(bool(one.get("first_wrong")) for one in exported),
            sum(bool(one.get("wrong")) for one in exported),
        )
        rows.append(
            [
                source,
                len(mine),
                len(exported),
                count["verified"],
                share,
                first,
                any_wrong,
                *(count[name] for name in columns[6:]),
            ]
        )
    return ["| " + " | ".join(map(str, row)) + " |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def _source(record: Record) -> str:
    return record["name"].partition("/")[0]


def _reasons(record: Record) -> str:
    return "; ".join(f"{row['caution']}: {row['reason']}" for row in record["candidates"] if row["verdict"] != "pass")


def _by_reason(title: str, records: Iterable[Record]) -> list[str]:
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for one in records:
        # Numbers and names differ from problem to problem; the fault is the rest.
        groups[re.sub(r"\d[\d.e+-]*", "#", f"{one['outcome']}: {one['detail']}")[:150]].append(one["name"])
    lines = [] if not groups else ["", f"{title}:"]
    for reason, names in sorted(groups.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
        lines.append(f"  {len(names):4}  {reason}  [{shown}]")
    return lines
