"""`weftline doctor`: is this machine ready?"""

from __future__ import annotations

import typer

from weftline.cli.output import JsonFlag, print_json, show

__all__ = ["doctor"]


def doctor(json: JsonFlag = False) -> None:
    """Check this installation and this machine.

    Python, the packages, plugins and compiled kernels; exit code 1 if something needed is missing.
    """
    from weftline.report.health import checkup

    findings = checkup()
    if json:
        print_json({"ok": all(f.ok or not f.needed for f in findings), "checks": [f._asdict() for f in findings]})
    else:
        for finding in findings:
            mark = "ok" if finding.ok else ("MISSING" if finding.needed else "absent")
            show(f"{mark:<8} {finding.what:<16} {finding.detail}")
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(1)
