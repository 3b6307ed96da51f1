"""Fetch llama.cpp as Debian builds it, unpacked into a folder and not installed, for the tests that run it.

In: a folder, and a Debian-like system whose mirror apt already knows. Out: that folder with the programs, the libraries
they need and their C library, to be named by WEFTLINE_LLAMACPP. Needs no root, changes nothing of the system.
Simplified: x86-64 Linux; packages of `unstable`, which apt checks by Debian's keys.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGES = ("llama.cpp-tools", "llama.cpp-tools-extra", "libggml0-backend-rpc")
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
DEFAULT_FOLDER = Path.home() / ".cache" / "weftline" / "llamacpp"
DEBIAN_MIRROR = "http://deb.debian.org/debian"


def main(folder: Path) -> None:
    """Everything; a folder that has the programs is left as it is."""
    if (folder / "usr/bin/llama-server").exists():
        print(folder)
        return
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not here; build llama.cpp with GGML_RPC=ON, and let WEFTLINE_LLAMACPP name its bin")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="llamacpp-", dir=folder.parent) as temporary:
        state = Path(temporary)
        for archive in download(state, mirror()):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(state / "root")], check=True)
        link_backends(state / "root")
        (state / "root").rename(folder)
    print(folder)


def mirror() -> str:
    """The first mirror of Debian's main archive that apt is told to use."""
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(REPO_URI)"], capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        _, _, address = line.partition(" ")
        if address.rstrip("/").endswith("/debian"):
            return address.rstrip("/")
    return DEBIAN_MIRROR


def download(state: Path, address: str) -> list[Path]:
    """Archives of the packages and of all that they need, by an apt with a state of its own."""
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb [signed-by={KEYS}] {address} unstable main\n", encoding="utf-8")
    options = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    words = ["apt-get", "--quiet", *(f"-o{name}={value}" for name, value in options.items())]
    for verb in (["update"], ["install", "--download-only", "--yes", *PACKAGES]):
        done = subprocess.run([*words, *verb], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"apt-get {verb[0]} from {address} failed:\n{done.stderr[-2000:]}")
    return sorted((state / "cache/archives").glob("*.deb"))


def link_backends(root: Path) -> None:
    """Libraries of devices, which ggml looks for beside the program that runs: here the loader of the C library."""
    for library in (root / LIBRARIES / "ggml/backends0").glob("*.so"):
        (root / LIBRARIES / library.name).symlink_to(library.relative_to(root / LIBRARIES))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help=f"default {DEFAULT_FOLDER}")
    main(parser.parse_args().folder.expanduser().absolute())
