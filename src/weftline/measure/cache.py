"""Profiles that were measured before, by a hash of everything they depend on.

In: the hash of a model, a cluster, its devices, settings, and how to measure. Out: the profile, from a file of the
cache folder (`XDG_CACHE_HOME`, else `~/.cache`) if it is there and can be read. Files are written whole or not at all,
so two processes at once do no harm; the last one stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from weftline import __version__
from weftline.cluster import Cluster
from weftline.cost.profile_file import Profile, load_profile, save_profile
from weftline.errors import InputError
from weftline.run.devices import OrtDevice
from weftline.run.openvino.devices import OpenvinoDevice

__all__ = ["cache_folder", "cached"]

MOST_STOLEN, MOST_SPREAD = 0.1, 0.2
"""A profile with more is not kept: it tells of other programs."""
FILE_FORM = 4
"""Counts up when what is measured changes."""


def cache_folder() -> Path:
    """Where profiles are kept."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".cache") / "weftline" / "profiles"


def cached(
    sha256: str,
    cluster: Cluster,
    devices: Mapping[str, OrtDevice | OpenvinoDevice],
    settings: Mapping[str, Any],
    measure: Callable[[], Profile],
    tell: Callable[[str], None],
) -> Profile:
    """The profile of the cache, or a new one, which is kept if the folder can be written."""
    path = cache_folder() / f"{_key(sha256, cluster, devices, settings)}.json"
    try:
        profile = load_profile(path) if path.is_file() else None
    except (OSError, InputError):
        profile = None  # damaged or not readable: measured again and written anew
    if profile is not None and profile.model_sha256 == sha256:
        tell(f"measured before, at {profile.made}; --no-cache measures again")
        return profile
    profile = measure()
    if any(device.stolen > MOST_STOLEN or device.spread > MOST_SPREAD for device in profile.devices):
        tell("the machine was busy: the profile is not kept")
        return profile
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_profile(profile, path)
    except (OSError, InputError) as error:
        tell(f"the profile is not kept: {error}")
    return profile


def _key(
    sha256: str, cluster: Cluster, devices: Mapping[str, OrtDevice | OpenvinoDevice], settings: Mapping[str, Any]
) -> str:
    links = sorted((link.source, link.target) for link in cluster.links)
    about = {
        "form": FILE_FORM,
        "weftline": __version__,
        "machine": [platform.node(), platform.machine(), os.cpu_count(), _cpu()],
        "model": sha256,
        "devices": [[d.id, d.speed, msgspec.to_builtins(devices[d.id])] for d in cluster.devices],
        "links": links,
        **settings,
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _cpu() -> str:
    """The processor's name, where the system says it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")), "")
