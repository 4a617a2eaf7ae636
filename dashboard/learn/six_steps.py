"""Six steps: from one head with one pattern to many, side by side; what is made of them stands in `mixing`."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analysis.by_hand import PUBLISHED, splits
from analysis.maps import AttentionMaps
from analysis.planted import D_MODEL, ROLES, eight_heads, one_head, planted, split_again
from analysis.six_words import Readout, blocks, maps_of, readouts
from analysis.statistics import entropy
from analysis.toy import MultiHeadAttention
from dashboard import boxes
from dashboard.choice import Choice
from dashboard.learn import controls, figures, keys
from dashboard.learn.controls import number
from dashboard.learn.figures import Matrix, matrices
from dashboard.learn.lesson import Picture, Real, Seen, Shown, Step, judged
from dashboard.learn.sentence import (
    bert_maps,
    bert_place,
    query,
    read_out,
    readout_table,
    role_names,
    spoken,
    word_controls,
)
from dashboard.text import _, escape, written


def rows_of(maps: AttentionMaps, place: int, names: list[str], title: str) -> Matrix:
    """Return the rows of one query, a head each."""
    return Matrix(title, maps.weights[0, :, place], names, list(maps.keys.labels), shares=True)


def _one() -> Shown:
    maps = maps_of(one_head(), spoken())
    found = readouts(maps, query())[0]
    words = list(maps.keys.labels)
    matrix = Matrix(_("one head"), maps.weights[0, 0], words, words, shares=True, chosen=query())
    alt = _("The map of one head over six words: every row is nearly even.")
    bits = entropy(maps.weights[0, 0])
    said = _("Over all six words between {low:.2f} and {high:.2f} bits: this head is nearly even everywhere.")
    return Shown(
        (maps, found),
        (read_out(found), said.format(low=float(bits.min()), high=float(bits.max()))),
        (Picture(_("One row for each word: it sums to 1"), matrices([matrix], 1), alt),),
        numbers={_("weights"): _table(maps, 0)},
    )


def _table(maps: AttentionMaps, head: int) -> pd.DataFrame:
    names = [f"{i} {label}" for i, label in enumerate(maps.keys.labels)]
    return pd.DataFrame(maps.weights[0, head], index=names, columns=names).round(6)


def _one_controls(seen: Seen) -> None:
    row = seen.found[0].weights[0, 0, query()] if isinstance(seen, Shown) else None
    word_controls(row)


def chosen_split(choice: Choice) -> int:
    """Return into how many heads the width is cut."""
    return int(st.session_state[choice.key])


def split_control(choice: Choice) -> None:
    """Let a number of heads be chosen."""
    boxes.choose(choice, _("Heads"), {str(heads): str(heads) for heads in (1, 2, 4, 8)})


def _many() -> Shown:
    heads = chosen_split(keys.SPLIT)
    maps = maps_of(split_again(eight_heads(), heads), spoken())
    words = list(maps.keys.labels)
    bits = entropy(maps.weights[0])  # [head, query]
    items = [
        Matrix(
            _("{number} · {bits:.2f} bits").format(number=head + 1, bits=float(bits[head].mean())),
            maps.weights[0, head],
            None,
            words if heads <= 4 and head < 2 else None,
            shares=True,
        )
        for head in range(heads)
    ]
    said = _(
        "{heads} heads of {width} dimensions: {patterns} patterns, {parameters:,} weights in the four matrices."
    )
    split = splits(D_MODEL, (heads,))[0]
    every = splits(D_MODEL, (1, 2, 4, 8))
    table = pd.DataFrame(
        [
            {
                _("heads"): str(one.num_heads),
                _("width of a head"): str(one.head_dim),
                _("weights"): f"4 × {D_MODEL}² = {written(f'{one.parameters:,}')}",
            }
            for one in every
        ]
    )
    published = pd.DataFrame(
        [
            {
                _("model"): f"{one.name} ({one.year})",
                _("width"): f"{written(f'{one.d_model:,}')} = {one.num_heads} × {one.head_dim}",
            }
            for one in PUBLISHED
        ]
    )
    return Shown(
        maps,
        (
            said.format(
                heads=heads, width=split.head_dim, patterns=split.patterns, parameters=split.parameters
            ),
        ),
        (
            Picture(
                _(
                    "The same matrices, cut into {heads}: over each map its head and the mean entropy of its rows"
                ).format(heads=heads),
                figures.matrices(items, 2 if heads <= 4 else 4, digits=2),
                _("The maps of {heads} heads over six words.").format(heads=heads),
            ),
        ),
        tables={
            _("One width, several cuts"): table,
            _("Published models: width = heads × their width"): published,
        },
        numbers={_("head {number}").format(number=head + 1): _table(maps, head) for head in range(heads)},
    )


def _patterns() -> Shown:
    maps = maps_of(eight_heads(), spoken())
    found = readouts(maps, query())
    names = role_names()
    real = bert_maps()
    layer = number(keys.REAL_LAYER, 2, 0, real.layers - 1)
    place = bert_place(real)
    real_found = readouts(real, place, layer=layer)
    heads = [str(one.head) for one in real_found]
    both = (
        rows_of(maps, query(), names, _("made by hand")),
        Matrix(
            _("bundled BERT, layer {layer}").format(layer=layer),
            real.weights[layer, :, place],
            heads,
            list(real.keys.labels),
            shares=True,
        ),
    )
    alt = _(
        "Where each head looks from “{query}”: eight made by hand, and those of a layer of the bundled BERT."
    )
    return Shown(
        found,
        (_("Query **{query}**: a row for each head.").format(query=escape(found[0].query_label)),),
        (
            Picture(
                _("One query, every head"),
                matrices(both, 1, digits=2),
                alt.format(query=found[0].query_label),
            ),
        ),
        tables={_("Made by hand"): readout_table(found, names)},
        numbers={
            _("Bundled BERT, layer {layer}").format(layer=layer): readout_table(real_found, heads),
        },
    )


def _patterns_controls(seen: Seen) -> None:
    word_controls()
    controls.slider(_("Layer of the bundled BERT"), keys.REAL_LAYER, 2, 0, 5)


def _concat() -> Shown:
    heads = chosen_split(keys.CONCAT)
    module = split_again(eight_heads(), heads)
    found = blocks(module, spoken().states)
    low, high = found.bounds[-1]
    ranges = ", ".join(
        _("head {number}: {low}–{high}").format(number=head + 1, low=first, high=last - 1)
        for head, (first, last) in enumerate(found.bounds)
    )
    said = _("{heads} blocks of {width} = **{total}** dimensions. {ranges}.").format(
        heads=heads, width=high - low, total=found.concat.shape[1], ranges=ranges
    )
    words = list(spoken().tokens.labels)
    return Shown(
        found,
        (said,),
        (
            Picture(
                _("A row for each word, a frame for each head"),
                figures.blocks(found.concat, found.bounds, words, query()),
                _("The concat of {heads} heads: {total} columns in {heads} frames.").format(
                    heads=heads, total=found.concat.shape[1]
                ),
            ),
        ),
        numbers={
            _("concat"): pd.DataFrame(found.concat, index=[f"{i} {w}" for i, w in enumerate(words)]).round(6)
        },
    )


def _concat_controls(seen: Seen) -> None:
    split_control(keys.CONCAT)
    word_controls()


def _is_most_even(found: tuple[AttentionMaps, Readout]) -> bool:
    bits = entropy(found[0].weights[0, 0])
    return query() == int(bits.argmax())


def _is_second_noun(found: tuple[AttentionMaps, Readout]) -> bool:
    return found[1].key_label == found[0].keys.labels[4]


def _halves(found: tuple[Readout, ...]) -> bool:
    """Whether the head of the same word gives as much to another place with the same word."""
    same = list(ROLES).index("same")
    return found[same].weight < 0.5


def _has_no_next(found: tuple[Readout, ...]) -> bool:
    return found[list(ROLES).index("next")].key == query()


STEPS = (
    Step(
        "one",
        _one,
        _one_controls,
        {"highest": judged(_is_most_even), "other": judged(_is_second_noun)},
        (MultiHeadAttention.trace, planted),
        lambda: Real("attention", _("One head of a real BERT, word by word"), {"layer": "3", "head": "1"}),
    ),
    Step(
        "many",
        _many,
        lambda _seen: split_control(keys.SPLIT),
        {
            "sixteen": judged(lambda maps: maps.heads == 4),
            "blend": judged(lambda maps: maps.heads == 1),
        },
        (split_again, MultiHeadAttention._split),
        lambda: Real("attention", _("All heads of one layer of a real BERT"), {"view": "heads"}),
    ),
    Step(
        "patterns",
        _patterns,
        _patterns_controls,
        {"twice": judged(_halves), "end": judged(_has_no_next)},
        (readouts, planted),
        lambda: Real("heads", _("What each head of a real BERT is for, over many texts"), {}),
    ),
    Step(
        "concat",
        _concat,
        _concat_controls,
        {
            "third": judged(lambda found: found.bounds[min(1, len(found.bounds) - 1)] == (16, 32)),
            "pairs": judged(lambda found: len(found.bounds) == 2),
        },
        (blocks,),
        lambda: Real(
            "attention", _("All heads of a real BERT in one picture"), {"view": "heads", "scope": "model"}
        ),
    ),
)
