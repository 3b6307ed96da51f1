"""Pack the checkers into one file that runs wherever Python does: `python check.pyz plan.json`.

In: the folder `certify` of this clone. Out: an archive with its modules, without those that need weftline. Simplified:
the same sources give the same bytes; nothing is compiled, so an auditor reads what runs (`unzip check.pyz`).
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "weftline" / "certify"
LEFT_OUT = {"__init__.py", "run.py"}
"""They speak to the rest of weftline."""
TIME = (1980, 1, 1, 0, 0, 0)


def main(target: Path) -> None:
    """Write the archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(FOLDER.glob("*.py")):
            if path.name not in LEFT_OUT:
                archive.writestr(zipfile.ZipInfo(path.name, TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
    print(target, f"{target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "check.pyz"))
