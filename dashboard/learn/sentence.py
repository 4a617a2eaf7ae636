"""The six words of the steps: the sentence, the chosen word, and what the heads look at from it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.maps import AttentionMaps
from analysis.planted import ROLES
from analysis.six_words import SENTENCES, Readout, Sentence, sentence
from dashboard import cache, sidebar
from dashboard.learn import controls, keys
from dashboard.learn.controls import number
from dashboard.text import _, escape, language

FIRST_WORD = 1  # the noun that chases


def spoken() -> Sentence:
    """Return the six words in the language of the session, in English where they are in no other."""
    return sentence(language() if language() in SENTENCES else "en")


def query() -> int:
    """Return the place of the chosen word among the six."""
    return number(keys.WORD, FIRST_WORD, 0, 5)


def role_names() -> list[str]:
    """Return what the eight heads are called."""
    names = {
        "position": _("neighbours"),
        "subject": _("subject"),
        "object": _("object"),
        "first": _("first token"),
        "same": _("same word"),
        "punctuation": _("punctuation"),
        "next": _("next token"),
        "broad": _("broad"),
    }
    return [names[role] for role in ROLES]


def read_out(found: Readout) -> str:
    """Return where a head looks from the query, as a sentence."""
    return _(
        "Query **{query}** looks most at **{key}**, {weight:.2f} of its weight. Entropy {bits:.2f} of {most:.2f} bits."
    ).format(
        query=escape(found.query_label),
        key=escape(found.key_label),
        weight=found.weight,
        bits=found.bits,
        most=found.most,
    )


def readout_table(found: tuple[Readout, ...], names: list[str]) -> pd.DataFrame:
    """Return a row a head: what it looks at most, with which weight, and how even its row is."""
    return pd.DataFrame(
        [
            {
                _("head"): name,
                _("top key"): one.key_label,
                _("weight"): round(one.weight, 2),
                _("entropy (bits)"): round(one.bits, 2),
            }
            for one, name in zip(found, names, strict=True)
        ]
    )


def word_controls(row: np.ndarray | None = None) -> None:
    """Draw the six words as buttons."""
    controls.sentence(spoken().tokens.labels, row, query())


def bert_maps() -> AttentionMaps:
    """Return what the bundled BERT looks at in the same sentence, by words."""
    return cache.maps(sidebar.BUNDLED, spoken().tokens.texts[0], None, "words")


def bert_place(maps: AttentionMaps) -> int:
    """Return where the chosen word stands for the bundled BERT, which begins with [CLS]."""
    return min(query() + 1, len(maps.queries) - 1)
