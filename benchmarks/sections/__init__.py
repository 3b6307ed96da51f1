"""The sections of the benchmarks by name, in the order of the page: each is measured and declared in one file here."""

from __future__ import annotations

from benchmarks.section import Section
from benchmarks.sections import (
    cards,
    estimates,
    execution,
    faults,
    fiddle,
    fusion,
    heads,
    layers,
    learned,
    llamacpp,
    measured,
    models,
    paper,
    placement,
    policy,
    proofs,
    quality,
    regal,
    scale,
    schedules,
    serving,
    speed,
    start,
    steps,
    tessel,
    unequal,
)

__all__ = ["SECTIONS"]

SECTIONS: dict[str, Section] = {
    section.name: section
    for section in (
        paper.SECTION,
        fiddle.SECTION,
        regal.SECTION,
        unequal.SECTION,
        proofs.SECTION,
        layers.SECTION,
        serving.SECTION,
        scale.PIPELINES,
        placement.SECTION,
        heads.SECTION,
        fusion.SECTION,
        scale.PLACEMENTS,
        learned.SECTION,
        policy.SECTION,
        schedules.SECTION,
        tessel.SECTION,
        cards.SECTION,
        estimates.SECTION,
        llamacpp.SECTION,
        measured.SECTION,
        steps.SECTION,
        execution.SECTION,
        models.SECTION,
        faults.SECTION,
        quality.SECTION,
        speed.SECTION,
        start.SECTION,
    )
}
