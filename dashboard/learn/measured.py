"""What n x n costs on this machine, and one word in two texts of the bundled BERT."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from analysis.cost import LENGTHS, Cost, cost, costs, growth
from analysis.senses import ALIKE, TEXTS, WORD, Senses, senses
from dashboard import boxes, cache, sidebar, state
from dashboard.learn import controls, keys
from dashboard.learn.controls import number, steps
from dashboard.learn.figures import Line, lines
from dashboard.learn.lesson import Picture, Real, Seen, Shown, Step, judged
from dashboard.text import _, escape

MEASURED = "learn.costs"  # what was measured in this session
LONGER = (*LENGTHS, 2048)
FIRST = 1  # place of the longest text that is measured at once, of those a reader may choose
ENOUGH = 1024  # tokens


def lengths() -> tuple[int, ...]:
    """Return the lengths that are measured."""
    return LONGER[: number(keys.LONGEST, FIRST, 0, len(LONGER) - 2) + 2]


def measured() -> list[Cost]:
    """Return the costs of the chosen lengths; what was not measured in this session yet is measured now."""
    kept: dict[int, Cost] = st.session_state.setdefault(MEASURED, {})
    missing = [tokens for tokens in lengths() if tokens not in kept]
    if missing:
        import torch

        torch.set_num_threads(1)  # of this thread of a session
        kept.update((one.tokens, one) for one in costs(missing))
    return [kept[tokens] for tokens in lengths()]


def _cost() -> Shown:
    found = measured()
    n = [one.tokens for one in found]
    seconds = lines(
        [
            Line(_("scores, softmax, means"), n, [1e3 * one.seconds for one in found]),
            Line(_("fused form"), n, [1e3 * one.fused_seconds for one in found]),
        ],
        x=_("tokens, n"),
        y=_("milliseconds"),
        logarithmic=(True, True),
        height=280,
    )
    memory = lines(
        [
            Line(_("maps, n × n"), n, [one.map_bytes / 2**20 for one in found]),
            Line(_("queries, keys, values, contexts"), n, [one.state_bytes / 2**20 for one in found]),
        ],
        x=_("tokens, n"),
        y=_("megabytes"),
        logarithmic=(True, True),
        height=280,
    )
    last = found[-1]
    said = (
        _(
            "One layer of 8 heads at **{tokens:,}** tokens takes {time:.1f} ms, and {size:.1f} MB for its maps alone. "
            "The fused form takes {fused:.1f} ms and holds no map."
        ).format(
            tokens=last.tokens,
            time=1e3 * last.seconds,
            size=last.map_bytes / 2**20,
            fused=1e3 * last.fused_seconds,
        ),
        _(
            "The memory of the maps grows with n to the power of **{maps:.2f}**, the time of the layer with n to the power of **{time:.2f}**."
        ).format(
            maps=growth(n, [one.map_bytes for one in found]),
            time=growth(n, [one.seconds for one in found]),
        ),
    )
    alt_time = _("Time against tokens: {low:.2f} ms at {first} tokens, {high:.2f} ms at {last}.").format(
        low=1e3 * found[0].seconds, first=n[0], high=1e3 * last.seconds, last=n[-1]
    )
    alt_memory = _("Memory against tokens: {low:.2f} MB at {first} tokens, {high:.2f} MB at {last}.").format(
        low=found[0].map_bytes / 2**20, first=n[0], high=last.map_bytes / 2**20, last=n[-1]
    )
    table = pd.DataFrame(
        {
            _("tokens"): n,
            _("ms"): [round(1e3 * one.seconds, 3) for one in found],
            _("ms, fused"): [round(1e3 * one.fused_seconds, 3) for one in found],
            _("MB of maps"): [round(one.map_bytes / 2**20, 3) for one in found],
        }
    )
    return Shown(
        found,
        said,
        (Picture(_("Time"), seconds, alt_time), Picture(_("Memory"), memory, alt_memory)),
        numbers={_("measured here"): table},
    )


def _cost_controls(_seen: Seen) -> None:
    steps(_("Measure up to … tokens"), LONGER[1:], keys.LONGEST, len(lengths()) - 2)
    st.button(_("Measure again"), key="learn.again", icon=":material/refresh:", on_click=_forget)


def _forget() -> None:
    state.acted()
    st.session_state[MEASURED] = {}


def texts() -> tuple[str, str]:
    """Return the two texts that are compared."""
    return TEXTS if st.session_state[keys.SENSE.key] == "apart" else ALIKE


def _context() -> Shown:
    found = cache.senses(sidebar.BUNDLED, WORD, texts())
    layers = len(found.layers)
    at = number(keys.DEPTH, 0, 0, layers + 1)
    values = [found.embedding, found.positioned, *found.layers.tolist()]
    names = [
        _("word embedding"),
        _("with position"),
        *(_("after layer {layer}").format(layer=i) for i in range(layers)),
    ]
    figure = lines(
        [Line(_("cosine"), list(range(len(values))), values)],
        x="",
        y=_("cosine"),
        mark=at,
        low=None,
        height=340,
    )
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, tickangle=-35)
    figure.update_yaxes(range=[min(0.5, min(values) - 0.05), 1.02])
    said = (
        _("“{word}” in: {first} / {second}").format(
            word=found.word, first=escape(found.texts[0]), second=escape(found.texts[1])
        ),
        _("**{where}**: cosine **{cosine:.3f}**.").format(where=names[at], cosine=values[at]),
    )
    alt = _(
        "Cosine of the two vectors of “{word}”: {first:.2f} as embeddings, {last:.2f} after the last layer."
    ).format(word=found.word, first=values[0], last=values[-1])
    table = pd.DataFrame({_("where"): names, _("cosine"): np.round(values, 6)})
    return Shown(
        found,
        said,
        (Picture(_("How alike the vectors of the word are"), figure, alt),),
        numbers={_("cosines"): table},
    )


def _context_controls(_seen: Seen) -> None:
    boxes.choose(keys.SENSE, _("Texts"), {"apart": _("two meanings"), "alike": _("one meaning")})
    controls.slider(_("Place in the network"), keys.DEPTH, 0, 0, 7)


def _is_least(found: Senses) -> bool:
    values = [found.embedding, found.positioned, *found.layers.tolist()]
    return st.session_state[keys.SENSE.key] == "apart" and number(keys.DEPTH, 0, 0, 7) == int(
        np.argmin(values)
    )


STEPS = (
    Step(
        "cost",
        _cost,
        _cost_controls,
        {"four": judged(lambda found: found[-1].tokens >= ENOUGH)},
        (cost, growth),
        lambda: Real("pruning", _("What fewer heads save in a real BERT, measured"), {}),
    ),
    Step(
        "context",
        _context,
        _context_controls,
        {
            "layer": judged(_is_least),
            "alike": judged(lambda _found: st.session_state[keys.SENSE.key] == "alike"),
        },
        (senses,),
        lambda: Real("compare", _("Two sentences beside each other in a real BERT"), {}),
    ),
)
