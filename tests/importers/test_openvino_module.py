"""How OpenVINO is loaded."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import multiprocessing, sys, threading
from weftline.importers import read_file
import weftline.importers.openvino.live, weftline.run.openvino.run, weftline.export.openvino
assert "openvino" not in sys.modules
from weftline.importers.openvino import openvino_module
before = threading.active_count()
openvino_module().Core()
assert threading.active_count() == before and not multiprocessing.active_children()
assert "openvino_telemetry" not in sys.modules
"""


def test_loading() -> None:
    """Tests that our rooms load without OpenVINO, and that it starts neither threads nor processes of Python."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_without_openvino() -> None:
    """Tests the sentence where OpenVINO is not installed."""
    script = """
import sys
sys.modules["openvino._pyopenvino"] = None
from weftline.errors import MissingExtra
from weftline.importers.openvino import openvino_module
try:
    openvino_module()
except MissingExtra as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "openvino is not installed. Try: pip install 'weftline[openvino]'"
