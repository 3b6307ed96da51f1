"""Model file -> Graph, one file per format behind one registry; the format is found by content, never by file name
alone.

In: a path and `ImportOptions`. Out: `Imported`: the graph and, where the file holds costs too, `FileCosts`, from which
the problem room makes a whole Problem. Simplified: weights are counted, never read; the constant cone is folded away.
"""

from weftline.importers.foreign import foreign_file
from weftline.importers.registry import (
    DeviceClass,
    FileCosts,
    Imported,
    Importer,
    ImportOptions,
    detect,
    importers,
    read_file,
)

__all__ = [
    "DeviceClass",
    "FileCosts",
    "ImportOptions",
    "Imported",
    "Importer",
    "detect",
    "foreign_file",
    "importers",
    "read_file",
]
