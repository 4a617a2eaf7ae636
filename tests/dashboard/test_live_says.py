"""Ablate live under other models: what each kind of checkpoint can say, and the numbers as tables and files."""

from __future__ import annotations

import html
import io
from functools import partial

import numpy as np
import pandas as pd
import pytest

from analysis.answers import distances, lines, moved
from analysis.live import answer, effects
from analysis.maps import Head
from dashboard import cache, switched
from dashboard.examples import EXAMPLES
from dashboard.naming import number
from tests.dashboard.test_compare_page import grids, values_of
from tests.dashboard.test_lens_views import files, in_page, numbers_of, press
from tests.dashboard.test_live_page import LIVE, SHAPE, headline, mask_of, off_in, switch
from tests.dashboard.test_pages import (
    _nothing_opened_before,
    open_page,
    put,
    ran,
    said,
    sent,
    spec,
    write,
    z_of,
)
from tests.tiny import TOKENIZERS, save_tiny, word_pieces

__all__ = ["_nothing_opened_before", "files", "press", "switch"]  # fixtures for this file too

CAT = "the cat sat on a mat"


@pytest.fixture
def open_tiny(tmp_path):
    """Return a function that opens the page on a tiny model of its own, and gives the model too."""

    def opened(family="bert", kind="headless", **changes):
        folder = save_tiny(tmp_path / f"{family}-{kind}", family, kind, **changes)
        model = cache.source(str(folder), None, "cpu")  # what is open here, a link may open
        return write(open_page(LIVE, model=str(folder)), CAT), model

    return opened


def bars_of(at):
    """Return by their order the names of the bars, and the values before and after."""
    drawn = spec(at)
    after, before = drawn["data"]
    assert (before["name"], after["name"]) == ("before", "after")
    assert len(set(before["y"])) == len(before["y"])  # equal names are bars of their own
    axis = drawn["layout"]["yaxis"]
    assert axis["tickvals"] == before["y"] == after["y"] == axis["categoryarray"][::-1]
    return axis["ticktext"], numbers_of(before["x"]), numbers_of(after["x"])


def shown_names(wanted):
    """Return how names stand in a chart, which reads its texts as a kind of HTML."""
    return [html.escape(line.name, quote=False) for line in wanted]


def guesses(model, several, wanted):
    """Return how guesses stand in a chart."""
    names = []
    for line in wanted:
        read = model.tokenizer.decode([int(line.name)]).strip()
        if read in ("", "\ufffd"):  # a blank, a part of a letter
            read = model.tokenizer.convert_ids_to_tokens(int(line.name))
        names.append(html.escape(f"{line.about}: {read}" if several else read, quote=False))
    return names


def check_bars(at, before, after, names):
    """Check the bars against two answers."""
    shown, one, other = bars_of(at)
    wanted = lines(before, after, str)
    assert shown == names(wanted)
    np.testing.assert_allclose(one, [line.before for line in wanted], atol=1e-9)
    np.testing.assert_allclose(other, [line.after for line in wanted], atol=1e-9)


# What a model can say


def test_two_sentences_are_read_alone(switch, bundled):
    pair = "A man is playing a guitar.", "A man is playing a flute."
    at = switch(open_page(LIVE, example="5"), (0, 3), (2, 5))
    before, after = answer(bundled, *pair), answer(bundled, *pair, off=mask_of((0, 3), (2, 5)))
    assert headline(before.values[0], after.values[0]) in said(at)
    first, second = distances(before, after)
    assert f"Their embeddings move by {number(first)} and {number(second)}" in said(at)
    for side, name in enumerate(("first", "second")):
        put(at, side=name)
        np.testing.assert_allclose(
            values_of(grids(at)[0]), moved(before.maps[side], after.maps[side]), atol=5.1e-4
        )


def test_a_classifier_tells_its_classes(switch, open_tiny):
    labels = {0: "<b>bad</b>", 1: "good & fine", 2: "good & fine"}
    at, model = open_tiny("bert", "classification", num_labels=3, id2label=labels)
    whole = answer(model, CAT)
    check_bars(at, whole, whole, shown_names)
    assert "probability of the most likely class" in sent(at, "switches")["label"]
    np.testing.assert_allclose(values_of(sent(at, "switches")), effects(model, CAT, None, whole), atol=5.1e-4)
    off = mask_of((0, 1), (1, 2), shape=(3, 4))
    check_bars(switch(at, (0, 1), (1, 2)), whole, answer(model, CAT, off=off), shown_names)
    pair = CAT, "a dog"
    check_bars(write(at, *pair), answer(model, *pair), answer(model, *pair, off), shown_names)


def test_a_model_of_one_score_tells_it(switch, open_tiny):
    at, model = open_tiny("distilbert", "classification", num_labels=1)
    before, after = (answer(model, CAT, off=off).values[0] for off in (None, mask_of((0, 1), shape=(3, 4))))
    assert headline(before, after) in said(switch(at, (0, 1)))
    assert not [chart for chart in at.get("plotly_chart") if "before and after" in chart.proto.alt]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_masked_word_is_guessed(family, switch, open_tiny):
    at, model = open_tiny(family, "masked")
    mask = model.tokenizer.mask_token
    hint = f"Write `{mask}` in place of a word, and the model’s guesses for it are shown."
    assert hint in said(at)
    assert headline(0, 0) in said(at)
    for text in (f"the {mask} sat", f"the {mask} sat on {mask}"):
        write(at, text)
        assert hint not in said(at)
        whole, after = answer(model, text), answer(model, text, off=mask_of((0, 1), shape=(3, 4)))
        check_bars(switch(at, (0, 1)), whole, after, partial(guesses, model, text.count(mask) > 1))
        ran(at.button(key="live.on").click().run())
        check_bars(at, whole, whole, partial(guesses, model, text.count(mask) > 1))


def test_a_model_without_a_mask_token_gives_no_hint(open_tiny, monkeypatch):
    def without(**options):
        tokenizer = word_pieces(**options)
        tokenizer.mask_token = None
        return tokenizer

    monkeypatch.setitem(TOKENIZERS, "bert", without)
    at, model = open_tiny("bert", "masked")
    assert model.tokenizer.mask_token is None
    assert "in place of a word" not in said(at)
    assert headline(0, 0) in said(at)


# Models


def test_the_toy_has_nothing_to_say(switch):
    at = switch(open_page(LIVE), (0, 3))
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert "The toy has one layer and says nothing that could change." in at.info[0].value
    assert not at.get("plotly_chart")
    assert not at.get("bidi_component")
    ran(at.selectbox(key="model.box.en").set_value("bundled").run())
    assert off_in(at) == [(0, 3)]


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (12, 6), (2, 7), (24, 16)])
def test_a_mask_of_another_model_is_all_on(layers, heads, switch, open_tiny):
    sizes = {"num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": 8 * heads}
    at, model = open_tiny(**sizes)
    put(at, off=switched.write(mask_of((5, 11), (5, 3))))
    shown = sent(at, "switches")
    assert (len(shown["cells"]), len(shown["cells"][0]), shown["off"]) == (layers, heads, [])
    assert headline(0, 0) in said(at)
    switch(at, (layers - 1, heads - 1))
    assert off_in(at) == [(layers - 1, heads - 1)]
    off = mask_of((layers - 1, heads - 1), shape=(layers, heads))
    assert headline(0, distances(answer(model, CAT), answer(model, CAT, off=off))[0]) in said(at)
    ran(at.button(key="live.undo").click().run())
    ran(at.selectbox(key="model.box.en").set_value("bundled").run())
    assert off_in(at) == [(5, 3), (5, 11)]


# Numbers and files


def test_tables_and_files_hold_the_numbers(switch, files, bundled):
    at = switch(put(open_page(LIVE, example="5"), side="second"), (0, 3), (2, 5))
    pair = EXAMPLES[4].text, EXAMPLES[4].pair
    before, after = answer(bundled, *pair), answer(bundled, *pair, off=mask_of((0, 3), (2, 5)))
    put(at, **{"live.table": True})
    what, heads = (frame.value for frame in at.dataframe)
    numbers = [before.values[0], after.values[0], after.values[0] - before.values[0]]
    np.testing.assert_allclose(what.loc[0, ["before", "after", "change"]].astype(float), numbers, atol=1e-6)
    assert what["what"].tolist() == ["similarity of the two sentences"]
    assert heads[["layer", "head"]].to_numpy().tolist() == [[a, b] for a in range(6) for b in range(12)]
    np.testing.assert_array_equal(heads["off"].to_numpy().reshape(SHAPE), mask_of((0, 3), (2, 5)))
    alone = heads["change if off alone"].to_numpy().reshape(SHAPE)
    np.testing.assert_allclose(alone, effects(bundled, *pair, before), atol=1e-5)
    values = heads["attention moved (bits)"].to_numpy().reshape(SHAPE)
    np.testing.assert_allclose(values, moved(before.maps[1], after.maps[1]), atol=1e-5)
    found = files(at)
    base = f"live-all-MiniLM-L6-v2-{at.query_params['off']}"
    assert set(found) == {f"{base}-said.csv", f"{base}-heads.csv", f"{base}.html"}
    for name, table in (("said", what), ("heads", heads)):
        frame = pd.read_csv(io.BytesIO(found[f"{base}-{name}.csv"]), keep_default_na=False)
        pd.testing.assert_frame_equal(frame, table, check_dtype=False, rtol=1e-6)
    page = found[f"{base}.html"].decode("utf-8")
    best = Head(*(int(i) for i in divmod(int(values.argmax()), 12)))
    assert f"<h2>{best}: difference</h2>" in page
    assert in_page(z_of(at)) in page
    ran(at.button(key="live.on").click().run())
    assert {name.rsplit("-", 1)[-1] for name in files(at)} == {"said.csv", "heads.csv"}
    assert not at.dataframe[1].value["attention moved (bits)"].any()
