"""Tests of measuring this machine; sizes are tiny, but the processes, messages and clocks are real."""

import gc
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weftline.cluster import Cluster, check_cluster, detect, warnings
from weftline.cluster import detect_run as run
from weftline.errors import InputError, LimitReached, WeftlineError

module = sys.modules["weftline.cluster.detect"]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """After each test: no process, no block of shared memory, and the environment as before."""
    before = dict(os.environ)
    yield
    gc.collect()
    assert multiprocessing.active_children() == []
    assert list(Path("/dev/shm").glob(f"weftline-{os.getpid()}-*")) == []
    assert {name: os.environ.get(name) for name in before if name != "PYTEST_CURRENT_TEST"} == {
        name: value for name, value in before.items() if name != "PYTEST_CURRENT_TEST"
    }
    assert not any(name.endswith("_NUM_THREADS") for name in os.environ.keys() - before.keys())


def test_detect() -> None:
    """Tests that the machine is measured into a cluster that keeps the rules, round-trips and is complete."""
    told: list[str] = []
    cluster = detect(quick=True, on_event=told.append)
    assert check_cluster(cluster) is cluster
    assert Cluster.parse(cluster.to_toml()) == cluster
    assert warnings(cluster) == ()
    cores = [core for device in cluster.devices for core in device.runtime.split(":")[2].split(",")]
    assert sorted(map(int, cores)) == sorted(os.sched_getaffinity(0))
    assert len(cluster.links) == len(cluster.devices) * (len(cluster.devices) - 1)
    for device in cluster.devices:
        assert device.rate is not None
        assert device.rate.fp32 > 10**7
        assert device.rate.bandwidth > 10**7
        assert device.capacity is not None
        assert device.capacity > 0
    assert told[0] == "measuring cpu0"


def test_one_device_takes_all_cores() -> None:
    """Tests that the cores can be measured together."""
    cluster = detect(1, quick=True)
    assert len(cluster.devices) == 1
    assert cluster.links == ()
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    assert cluster.devices[0].runtime == f"ort:CPUExecutionProvider:{cores}"


@pytest.mark.parametrize("devices", [0, -1, 10**6])
def test_impossible_number_of_devices(devices: int) -> None:
    """Tests that asking for no device, or for more than there are cores, is an input error."""
    with pytest.raises(InputError, match=r"devices: cannot make -?\d+ devices of \d+ physical cores \(ask for 1 to"):
        detect(devices, quick=True)


def test_split() -> None:
    """Tests that cores are split evenly and in order, siblings staying together."""
    cores = [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)]
    places = module._split(cores, 2)
    assert [place.cores for place in places] == [(0, 1, 2, 5, 6, 7), (3, 4, 8, 9)]
    assert [place.threads for place in places] == [3, 2]
    assert [place.cores for place in module._split(cores, None)] == cores


def test_many_devices_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that with many cores one device stands for all, one pair for each kind of pair, and the name says so."""
    core = min(os.sched_getaffinity(0))
    places = [module._Place((core,), 1, socket) for socket in "000111"]
    monkeypatch.setattr(module, "_split", lambda cores, devices: places)
    told: list[str] = []
    cluster = detect(quick=True, on_event=told.append)
    assert told == [
        "measuring cpu0",
        "measuring the link between cpu0 and cpu1",
        "measuring the link between cpu0 and cpu3",
    ]
    assert len({device.rate for device in cluster.devices}) == 1
    assert len(cluster.links) == 30
    assert "taken as equal" in cluster.name
    assert Cluster.parse(cluster.to_toml()) == cluster


def test_memory_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a container's limit counts, not the memory of the machine around it."""
    values = {"/sys/fs/cgroup/memory.max": str(300 * 2**20), "/sys/fs/cgroup/memory.current": str(100 * 2**20)}
    monkeypatch.setattr(module, "_read", lambda path: values.get(path, ""))
    assert module._memory() == (300 * 2**20, 200 * 2**20)
    monkeypatch.setattr(module, "_memory", lambda: (300 * 2**20, 200 * 2**20))
    places = [module._Place((0,), 1, ""), module._Place((1,), 1, "")]
    one, two = module._devices(["a", "b"], places, [None, None])
    assert (one.memory, one.reserve) == (150 * 2**20, 57 * 2**20)
    assert two.capacity == 93 * 2**20


@pytest.mark.parametrize("event", ["measuring cpu0", "measuring the link between cpu0 and cpu1"])
def test_interrupt(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that Ctrl-C while processes run is passed on and leaves nothing behind."""
    core = min(os.sched_getaffinity(0))
    places = [module._Place((core,), 1, "0")] * 2
    monkeypatch.setattr(module, "_split", lambda cores, devices: places)

    def interrupt(text: str) -> None:
        if text == event:
            assert multiprocessing.active_children()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        detect(quick=True, on_event=interrupt)


def test_time_limit() -> None:
    """Tests that time that is over before an answer came is said, not waited out."""
    with pytest.raises(LimitReached, match="time limit"):
        detect(time_limit=0.0)


def test_a_process_that_fails() -> None:
    """Tests that a measuring process that dies is an error of ours, with advice, and no endless wait."""
    no_cores: tuple[int, ...] = ()
    with pytest.raises(WeftlineError, match=r"ended early \(exit code 1\).*__main__"):
        run.measure_rate(no_cores, 1, True, run.stopwatch(60.0), lambda: None)


@pytest.mark.parametrize(("value", "rounded"), [(0, 1), (1, 1), (999, 999), (12_345, 12_300), (99_960, 100_000)])
def test_round(value: int, rounded: int) -> None:
    """Tests that three digits are kept and that nothing becomes 0."""
    assert run._round(value) == rounded
