"""The words of a sentence as a list from which the query is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from . import asset, heard, index, seen

_WORDS = st.components.v2.component(
    "headroom_words", css=asset("words.css"), js=asset("choice.js") + asset("words.js")
)


@dataclass(frozen=True)
class Word:
    """One word or token, told from its equals by its place.

    Args:
        text: shown literally.
        shade: 0 (none) to 1 (most accent colour), mapped linearly.
        quiet: smaller and quieter, for special tokens.
        title: shown on hover and read after the word by screen readers.
        starts: a new line starts before it, for the second sentence of a pair.
    """

    text: str
    shade: float
    quiet: bool
    title: str
    starts: bool = False


def words(
    items: Sequence[Word],
    *,
    chosen: int | None,
    label: str,
    key: str,
    on_choose: Callable[[int], None],
) -> None:
    """Draw a sentence whose words are shaded and let one word be chosen by mouse or arrow keys.

    Args:
        items: the words in order; nothing is drawn if there are none.
        chosen: place of the outlined word, or None.
        label: name of the whole list for screen readers.
        key: unique on the page; keep it the same across reruns, languages and sentences.
        on_choose: gets the place of the word before the rerun, also when it is already chosen.
    """
    if not items:
        return
    _WORDS(
        key=key,
        data={
            "words": [_packed(item) for item in items],
            "chosen": chosen,
            "label": label,
            "seen": seen(key),
        },
        on_choose_change=partial(_choose, key, len(items), on_choose),
    )


def _packed(item: Word) -> tuple[str, float, bool, str, bool]:
    shade = round(max(0.0, min(float(item.shade), 1.0)), 4)  # also turns NaN into 0
    return item.text, shade, item.quiet, item.title, item.starts


def _choose(key: str, count: int, on_choose: Callable[[int], None]) -> None:
    place = index(heard(key).get("index"), count)
    if place is not None:
        on_choose(place)
