"""Export: a plan or schedule in the form that other programs read, one file per target.

In: a `Timetable`. Out: text or files, held to strict rules of our own before they are written. Simplified: what a
target cannot express is refused with a sentence, never approximated.
"""

from weftline.export.torch_csv import read_torch_csv, torch_csv, write_torch_csv

__all__ = ["read_torch_csv", "torch_csv", "write_torch_csv"]
