"""The command line: one file per verb, no logic of its own.

In: words. Out: data on stdout (one JSON object with --json), progress and errors on stderr, an exit code (see
errors.py). Simplified: verbs import what they need when they run, so that --help answers at once.
"""

from weftline.cli.main import main

__all__ = ["main"]
