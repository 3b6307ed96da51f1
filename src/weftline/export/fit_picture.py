"""A picture of a language model on cards: a row for each device, its memory filled by weights, cache and buffers.

In: a FitPlan. Out: what `to_svg` and `to_png` of `picture.py` draw. All rows have one scale of bytes; what is not
filled is free, the layers stand beside it. Simplified: a host with much more memory than the cards is cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from weftline.export.fleet_picture import Maker
from weftline.export.picture import (
    LETTER_WIDTH,
    PAGE_MARGIN,
    PAGE_WIDTH,
    TEXT_SIZE,
    Canvas,
    DrawingCanvas,
    Look,
    short_text,
)
from weftline.plans.fit import FitHolding, FitPlan
from weftline.plans.fit_words import layers_words, rate_words, short_device_name

__all__ = ["FitPicture"]

CARD_HEIGHT, CARD_SPACE, WORDS_WIDTH = 30, 16, 210
MOST_CARDS_DRAWN, MOST_CARD_NAME, SPARE_LETTERS = 60, 40, 3
"""Names of cards are digits and capitals, which are wider than other letters."""
LONGEST_OF_CARDS = 1.5
"""A row is cut at so many times the largest card."""
PART_LOOKS = (Look("#9ecae1", "", "weights"), Look("#fdd49e", "/", "KV cache"), Look("#e5e5e5", "\\", "buffers"))
FREE_LOOK = Look("#fff", "", "free")


@dataclass(frozen=True, eq=False)
class FitPicture:
    """Memory of every device."""

    plan: FitPlan

    @property
    def title(self) -> str:
        """What stands above."""
        model = self.plan.model
        name = short_text(f"{model.name} {model.quantisation}".strip())
        return f"{name}: {rate_words(self.plan.rate)} tokens per second"

    def draw(self, make: Maker[Canvas]) -> Canvas:
        """The whole picture."""
        rows = self.plan.devices[:MOST_CARDS_DRAWN]
        names = [short_text(f"{one.id} {short_device_name(one)}", MOST_CARD_NAME) for one in rows]
        left = PAGE_MARGIN + LETTER_WIDTH * (SPARE_LETTERS + max([6, *map(len, names)]))
        top = PAGE_MARGIN + 34
        bottom = top + (CARD_HEIGHT + CARD_SPACE) * len(rows)
        canvas = make(PAGE_WIDTH, bottom + 44)
        canvas.text(PAGE_MARGIN, PAGE_MARGIN + TEXT_SIZE, self.title)
        room = PAGE_WIDTH - PAGE_MARGIN - left - WORDS_WIDTH
        scale = room / self._longest(rows)
        for number, (one, name) in enumerate(zip(rows, names, strict=True)):
            y = top + (CARD_HEIGHT + CARD_SPACE) * number
            canvas.text(PAGE_MARGIN, y + CARD_HEIGHT / 2 + 4, name)
            self._row(canvas, one, (left, y, scale, room))
        x = float(left)
        for look in (*PART_LOOKS, FREE_LOOK):
            canvas.box(x, bottom + 14, 24, 14, look)
            canvas.text(x + 30, bottom + 26, look.word)
            x += 50 + LETTER_WIDTH * len(look.word)
        return canvas

    def _longest(self, rows: tuple[FitHolding, ...]) -> float:
        """Bytes that fill the width."""
        cards = [one.limit_bytes for one in rows if not one.id.startswith("cpu")]
        longest = max((one.limit_bytes for one in rows), default=1)
        return float(max(1.0, min(longest, LONGEST_OF_CARDS * max(cards, default=longest))))

    def _row(self, canvas: DrawingCanvas, one: FitHolding, place: tuple[float, float, float, float]) -> None:
        left, y, scale, room = place
        width = min(room, one.limit_bytes * scale)
        canvas.box(left, y, max(width, 1.0), CARD_HEIGHT, FREE_LOOK)
        x = left
        for look, size in zip(PART_LOOKS, (one.weights_bytes, one.kv_bytes, one.compute_bytes), strict=True):
            part = min(size * scale, left + width - x)
            if part > 0.5:
                canvas.box(x, y, part, CARD_HEIGHT, look)
            x += max(0.0, part)
        used = one.weights_bytes + one.kv_bytes + one.compute_bytes
        words = f"{layers_words(one)}; {used / 2**30:.1f} of {one.limit_bytes / 2**30:.1f} GiB"
        canvas.text(left + width + 8, y + CARD_HEIGHT / 2 + 4, words)
