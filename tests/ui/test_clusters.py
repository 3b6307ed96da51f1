"""What edited clusters are called, and the folder in which users keep theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from weftline.errors import InputError, UsageError
from weftline.ui.clusters import MOST_KEPT, KeptClusters, cluster_label, data_folder
from weftline.ui.models import NotThere


@pytest.mark.parametrize("name", ["lab", "", "../../etc/passwd", "<img src=x>", "a b'c\"", "ü" * 300, "-rf", "."])
def test_labels_are_names_of_files(name: str) -> None:
    """Tests that whatever a cluster is called, its label is a plain name, and another text has another one."""
    first, second = cluster_label(name, "text"), cluster_label(name, "text ")
    assert first != second
    assert first[0].isalnum()
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert len(first) <= 50


def test_what_is_not_seen(tmp_path: Path) -> None:
    """Tests that links, folders, large files and other names in the folder are as good as none."""
    (tmp_path / "good.toml").write_text("x")
    (tmp_path / "link.toml").symlink_to(tmp_path / "good.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "large.toml").write_bytes(b" " * (2**20 + 1))
    (tmp_path / "a b.toml").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    kept = KeptClusters(tmp_path)
    assert kept.names == ["good"]
    for name in ("link", "folder", "large", "../good", ""):
        with pytest.raises(NotThere):
            kept.find(name)
    (tmp_path / "good.toml").unlink()
    with pytest.raises(NotThere):
        kept.find("good")


def test_limits(tmp_path: Path) -> None:
    """Tests names that are refused, a folder that cannot be made, and that there are never too many."""
    kept = KeptClusters(tmp_path / "new")
    for name in ("", "a/b", "..", "-x", "x" * 61, "a\0b", "x.toml"):
        with pytest.raises(UsageError, match="a name has letters"):
            kept.keep(name, "text")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="download it instead"):
        KeptClusters(tmp_path / "file" / "new").keep("lab", "text")
    for number in range(MOST_KEPT):
        kept.keep(f"c{number}", "text")
    with pytest.raises(UsageError, match="remove some"):
        kept.keep("one-more", "text")
    kept.keep("c0", "other")
    assert kept.find("c0") == "other"


def test_the_folder_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the user's own setting is followed where it is an absolute path."""
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert data_folder() == Path("/somewhere/weftline/clusters")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_folder() == Path("~/.local/share/weftline/clusters").expanduser()
