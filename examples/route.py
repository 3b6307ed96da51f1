"""Spread requests over the lanes of a router file, which `weftline export fleet.json --to router -o FOLDER` wrote.

    python route.py FOLDER/router.json [REQUESTS]

Smooth weighted round-robin on whole numbers: no lane is ever a whole request ahead of its share, and after as many
requests as the sum of the weights each lane has had exactly its weight. A server calls `next_lane` for every request.
"""

import json
import sys
from pathlib import Path


def read_lanes(path: Path) -> list:
    """The lanes of the file, which may come from somebody else."""
    router = json.loads(path.read_text(encoding="utf-8"))
    lanes = router["lanes"] if router.get("format") == "weftline-router" else []
    if not lanes or not all(type(lane["weight"]) is int and lane["weight"] > 0 for lane in lanes):
        raise SystemExit(f"{path} is no router file, or a weight in it is no whole number above 0")
    return lanes


def next_lane(weights: list, waiting: list) -> int:
    """The lane of the next request: the one that is owed most; `waiting` begins with zeros."""
    for number, weight in enumerate(weights):
        waiting[number] += weight
    chosen = waiting.index(max(waiting))
    waiting[chosen] -= sum(weights)
    return chosen


if __name__ == "__main__":
    found = read_lanes(Path(sys.argv[1]))
    weights, waiting, counts = [lane["weight"] for lane in found], [0] * len(found), [0] * len(found)
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    for request in range(requests):
        chosen = next_lane(weights, waiting)
        counts[chosen] += 1
        if request < 20:
            print(f"request {request}: {found[chosen]['name']} {found[chosen].get('address', '')}".rstrip())
    for lane, count in zip(found, counts, strict=True):
        print(f"{lane['name']}: {count} of {requests} requests")
