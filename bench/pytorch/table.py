"""Records of exposed.sh as a table: exposed milliseconds by arm and rate, and each as a part of DDP's own f32.

    .venv/bin/python bench/pytorch/table.py build/lab/exposed.jsonl
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    records = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    rates = list(dict.fromkeys(record["rate"] for record in records))
    exposed = {(record["arm"], record["rate"]): record["exposed_ms"] for record in records}
    print("| exposed ms a step | " + " | ".join(rates) + " |")
    print("|---|" + "---|" * len(rates))
    for arm in dict.fromkeys(record["arm"] for record in records):
        cells = []
        for rate in rates:
            mine, dense = exposed.get((arm, rate)), exposed.get(("ddp", rate))
            if mine is None:
                cells.append("did not run")
            elif arm == "ddp" or not dense:
                cells.append(f"{mine:.0f}")
            else:
                cells.append(f"{mine:.0f} ({mine / dense:.2f})")
        print(f"| `{arm}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
