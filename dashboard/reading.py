"""What the page is reading: a source, a text, and the units and tokens in which it is shown."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from analysis.maps import AttentionMaps, Floats, Head, Specials, Units, strongest, with_specials
from analysis.statistics import link
from analysis.tokens import Ints, Tokens, clip
from dashboard import cache, keys
from dashboard.examples import EXAMPLES, Example


@dataclass(frozen=True, eq=False)
class Reading:
    """A text under a source. A place is a position in the model's input; a unit is what is shown of it.

    places: [unit] the place of the first piece of each unit shown
    maps: all heads in the units chosen, special tokens kept; shared, never changed
    """

    key: str
    text: str
    pair: str | None
    units: Units
    specials: Specials
    pieces: Tokens
    maps: AttentionMaps
    places: Ints

    @property
    def tokens(self) -> Tokens:
        """The units shown."""
        return self.maps.queries.take(self._shown())

    @property
    def names(self) -> list[str]:
        """What each unit is called in a sentence: its label, with its position where others have the same."""
        labels = self.tokens.labels
        count = Counter(labels)
        return [clip(label) + (f" ({i})" if count[label] > 1 else "") for i, label in enumerate(labels)]

    def most_bits(self, head: Head, query: int) -> float:
        """Return the largest entropy in bits that the row of unit ``query`` could have."""
        if self.specials == "renormalise":
            keys = int(self.view(head).key_counts()[0, query])
        else:
            keys = int(self.maps.at(head).key_counts()[0, self._shown()[query]])
        return math.log2(max(keys, 1))

    def view(self, head: Head, lens: str = "weights") -> AttentionMaps:
        """Return the map of one head as it is shown, through a lens; rollout has one map for all heads of a layer."""
        if lens == "weights":
            return with_specials(self.maps.at(head), self.specials)
        seen = cache.lens_maps(self.key, self.text, self.pair, self.units, lens)
        return with_specials(seen.at(Head(head.layer, 0) if lens == "rollout" else head), self.specials)

    def unit(self, place: int | None) -> int | None:
        """Return the unit shown that holds ``place``, or None where it is hidden."""
        if place is None or not 0 <= place < len(self.pieces):
            return None
        if self.units == "words":
            place = int(np.flatnonzero(self.pieces.word == self.pieces.word[place])[0])
        found = np.flatnonzero(self.places == place)
        return int(found[0]) if len(found) else None

    def links(self, query: int, key: int) -> Floats:
        """Return [layer, head] the weight of unit ``query`` on unit ``key``, over all heads."""
        shown = self._shown()
        return link(self.maps, int(shown[query]), int(shown[key]), specials=self.specials)

    def entropies(self) -> tuple[Floats, Floats]:
        """Return the mean entropy of every head, in bits and normalised, each [layer, head]."""
        return cache.entropies(self.key, self.text, self.pair, self.units, self.specials)

    def is_gone(self, head: Head) -> bool:
        """Whether a head was removed from the model."""
        return bool(self.maps.gone[head.layer, head.index])

    def tiles(self) -> np.ndarray:
        """Return every head as a small map, see `cache.tiles`."""
        return cache.tiles(self.key, self.text, self.pair, self.units, self.specials)

    def _shown(self) -> Ints:
        if self.specials == "keep":
            return np.arange(len(self.maps.queries))
        return np.flatnonzero(~self.maps.queries.special)


def read(key: str, text: str, pair: str | None, units: Units, specials: Specials) -> Reading:
    """Read a text under the source ``key``. Raises TextError and ModelError."""
    pieces = cache.maps(key, text, pair, "pieces").queries
    maps = cache.maps(key, text, pair, units)
    places = pieces.word_starts() if units == "words" else np.arange(len(pieces))
    reading = Reading(key, text, pair, units, specials, pieces, maps, places)
    return replace(reading, places=places[reading._shown()])


def query_and_key(reading: Reading, head: Head) -> tuple[int, int] | None:
    """Return the units chosen as query and key; where none are yet, those of `first_link`.

    None where no unit is shown.
    """
    if not len(reading.places):
        return None
    query, key = (reading.unit(st.session_state[name]) for name in (keys.QUERY, keys.KEY))
    if query is None or key is None:
        number = st.session_state[keys.EXAMPLE]
        first = first_link(reading, head, EXAMPLES[number - 1] if number else None)
        query = first[0] if query is None else query
        key = first[1] if key is None else key
        places = int(reading.places[query]), int(reading.places[key])
        for name, place in zip((keys.QUERY, keys.KEY), places, strict=True):
            if st.session_state[name] is None:
                st.session_state[name] = place
        st.session_state[keys.FIRST_LINK] = places
    return query, key


def first_link(reading: Reading, head: Head, example: Example | None) -> tuple[int, int]:
    """Return the link worth a look: what the shipped example is about, else ``head``'s strongest of words."""
    labels = reading.tokens.labels
    if example is not None and example.query in labels and example.key in labels:
        last = len(labels) - 1 - labels[::-1].index(example.key)  # in a pair, the word of the second sentence
        return labels.index(example.query), last
    one = reading.view(head)
    special = one.queries.special
    words = np.where(special[:, None] | special[None, :], -1.0, np.nan_to_num(one.weights[0, 0]))
    return strongest(words)
