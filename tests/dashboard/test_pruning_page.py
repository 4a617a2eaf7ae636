"""The Pruning page against `analysis` itself: the curves, the slider along one, what is asked and what is refused."""

from __future__ import annotations

import io
import threading

import numpy as np
import pandas as pd
import pytest

from analysis import trial
from analysis.curves import knee
from analysis.datasets import split
from analysis.maps import Head, read_heads
from analysis.pruning import NEED_LOSS, ORDERS, Limits
from analysis.trial import Options
from dashboard import cache, jobs, keys
from dashboard.naming import interval, number, order_name
from tests.dashboard.test_ablation_page import WAIT, few, runs_of_its_own, settled, tiny
from tests.dashboard.test_lens_views import files, numbers_of
from tests.dashboard.test_pages import _nothing_opened_before, open_page, put, ran, said, sent, spec

__all__ = ["_nothing_opened_before", "few", "files", "runs_of_its_own", "tiny"]  # fixtures for this file too

PRUNING = "views/pruning.py"
QUICK = {"step": "0.25", "seeds": "2"}


def open_on(folder, **link):
    """Open the page on a model that someone opened here before, in wide steps."""
    cache._opened()[folder] = folder
    return open_page(PRUNING, model=folder, **QUICK | link)


def ask(at):
    """Press Run, and wait for all curves."""
    ran(at.button(key="pruning.run").click().run())
    return settled(at)


def direct(options, data):
    """Return the curves of a trial as the shell computes them."""
    model = cache.source(*cache.parts_of(options.model))
    made = trial.prepare(options, model, *split(data, seed=options.seed))
    return [made.curve(*one) for one in made.paths()]


def quick(folder, *orders, task="similarity", data="sample:en", **limits):
    """Return what the page asks in wide steps."""
    return Options(data, task, model=folder, orders=orders, seeds=2, limits=Limits(step=0.25, **limits))


def offered(at, files, task="similarity"):
    """Return the table of the curves that the page offers."""
    data = files(at)[f"pruning-{task}.csv"]
    return pd.read_csv(io.BytesIO(data), dtype={"heads": str}, keep_default_na=False)


def same(table, curves):
    """Assert that a table holds these curves."""
    wanted = trial.frame(curves)
    assert table["heads"].tolist() == wanted["heads"].tolist()
    pd.testing.assert_frame_equal(table, wanted, check_dtype=False, rtol=0, atol=1e-9)


def hatched(at):
    """Return the heads that the grid shows as gone."""
    cells = sent(at, "grid")["cells"]
    return {Head(a, b) for a, row in enumerate(cells) for b, cell in enumerate(row) if cell[4] == "off"}


def shows(at, curve, step, loss):
    """Assert that the page stands at a step of a curve, and says what can go by it."""
    found = knee(curve, loss)
    size = curve.path.there
    assert (
        f"**{found.removed} of {size} heads ({found.share:.0%})** can go by {order_name(curve.path.order)} "
        in said(at)
    )
    assert f"of at most {loss:g}, at 95% ({curve.changes.examples} examples that chose nothing)." in said(at)
    removed = int(curve.path.removed[step])
    score = interval(float(curve.score[step]), float(curve.low[step]), float(curve.high[step]))
    assert f"**{removed} of {size} heads gone**: Spearman {score}" in said(at)
    if step:
        changes, i = curve.changes, step - 1
        change = interval(float(changes.delta[i]), float(changes.low[i]), float(changes.high[i]))
        assert f"change {change}" in said(at)
        assert ("smaller than noise" in said(at)) == bool(changes.noise[i])
    assert at.select_slider(key="pruning.along").value == removed
    assert hatched(at) == {
        Head(*map(int, place)) for place in np.argwhere(curve.path.masks[step] | curve.path.gone)
    }


def start_of(curve, loss):
    """Return the step that the page starts at: the knee, or a third of the way where nothing can go."""
    found = knee(curve, loss)
    return found.step or int(np.abs(curve.path.removed - curve.path.removed[-1] / 3).argmin())


def test_the_default_runs_by_itself_and_its_numbers_are_those_of_a_trial(few, files):
    at = open_page(PRUNING)
    assert len(jobs._registry().unfinished()) == 2
    assert [bar.proto.text.split(":")[0] for bar in at.get("progress")] == ["Pruning by Fisher"]
    settled(at)
    options = Options("sample:en", "similarity", orders=("fisher", "random"), seeds=5)
    curves = direct(options, few["similarity", "en"])
    assert [one.path.seed for one in curves] == [0, 0, 1, 2, 3, 4]
    assert curves[0].changes.examples == 12
    same(offered(at, files), curves)
    shows(at, curves[0], start_of(curves[0], 0.02), 0.02)
    band, at_half = trial.band(curves), int(np.abs(curves[0].share - 0.5).argmin())
    score, low, high = (number(float(row[at_half])) for row in (curves[0].score, band.low, band.high))
    assert f"With {curves[0].share[at_half]:.0%} gone it scores {score}, " in said(at)
    assert f"5 random orders ({low} to {high})." in said(at)
    shade, mean, fisher, mark = spec(at)["data"]
    np.testing.assert_allclose(numbers_of(shade["y"]), [*band.high, *band.low[::-1]], atol=1e-9)
    np.testing.assert_allclose(numbers_of(mean["y"]), band.mean, atol=1e-9)
    np.testing.assert_allclose(numbers_of(fisher["x"]), 100 * curves[0].share)
    np.testing.assert_allclose(numbers_of(fisher["y"]), curves[0].score, atol=1e-9)
    step = start_of(curves[0], 0.02)
    assert numbers_of(mark["y"]) == pytest.approx([curves[0].score[step]])
    assert dict(at.query_params) == {}
    assert at.button(key="pruning.run").disabled
    put(at, **{"pruning.table": True})
    assert len(at.dataframe[0].value) == 6 * 12
    assert at.code[0].value == options.command()
    assert b"plotly" in files(at)["pruning-similarity.html"]


def test_another_visit_finds_what_is_there_and_asks_for_nothing_by_itself(tiny):
    at = open_on(tiny())
    assert not jobs._registry().unfinished(), "only the default runs by itself"
    assert "Press Run to measure this." in said(at)
    settled(ask(at))
    other = open_on(tiny())
    assert not jobs._registry().unfinished()
    assert said(other) == said(at)


def test_several_orders_the_slider_the_order_and_the_loss(tiny, few, files):
    names = ("importance", "importance-once", "signed", "ablation", "greedy", "fisher", "entropy", "random")
    assert names == ORDERS
    at = ask(open_on(tiny(), orders=",".join(names), loss="0.05"))
    curves = direct(quick(tiny(), *names), few["similarity", "en"])
    same(offered(at, files), curves)
    drawn = {trace["name"]: trace for trace in spec(at)["data"] if "name" in trace}
    assert list(drawn) == ["random (2)", *(order_name(name) for name in names[:-1])]
    styles = [(drawn[order_name(name)]["line"]["dash"], drawn[order_name(name)]["marker"]["symbol"])
              for name in names[:-1]]  # fmt: skip
    assert len(set(styles)) == 7, "colour alone never tells curves apart"
    best = max(curves[:7], key=lambda one: (knee(one, 0.05).removed, one.score.mean()))
    shows(at, best, start_of(best, 0.05), 0.05)
    for name in ("signed", "random"):
        one = curves[names.index(name)]
        ran(at.selectbox(key="pruning.order.en").set_value(name).run())
        shows(at, one, start_of(one, 0.05), 0.05)
        assert ("random orders (" in said(at)) == (name != "random")
    for removed in (0, 6, 12):
        ran(at.select_slider(key="pruning.along").set_value(removed).run())
        shows(at, curves[7], removed // 3, 0.05)
        assert ("Move the slider: nothing is removed here." in said(at)) == (removed == 0)
    for loss in ("0", "0.005", "0.01", "0.02"):
        ran(at.selectbox(key="loss.en").set_value(loss).run())
        shows(at, curves[7], 4, float(loss))
    assert not jobs._registry().unfinished()


def test_no_orders_are_the_first_ones_again(tiny):
    at = open_on(tiny(), orders="greedy")
    box = at.multiselect(key="pruning.orders.en")
    assert box.value == ["greedy"]
    ran(box.set_value([]).run())
    assert at.multiselect(key="pruning.orders.en").value == list(keys.FIRST_ORDERS)
    assert "orders" not in at.query_params
    ran(at.multiselect(key="pruning.orders.en").set_value(["entropy", "random"]).run())
    assert at.query_params["orders"] == "entropy,random"


def test_fidelity_offers_no_order_that_needs_a_loss(tiny, few, files):
    at = open_on(tiny(), task="fidelity", orders="importance,ablation")
    box = at.multiselect(key="pruning.orders.en")
    assert box.options == [order_name(name) for name in ORDERS if name not in NEED_LOSS]
    assert box.value == ["ablation"]
    same(
        offered(ask(at), files, "fidelity"),
        direct(quick(tiny(), "ablation", task="fidelity"), few["fidelity", "en"]),
    )
    at = open_on(tiny(), task="fidelity", orders="importance,fisher")
    assert at.multiselect(key="pruning.orders.en").value == ["random"]


def test_an_order_that_fails_says_why_and_the_page_lives(tiny, few, monkeypatch):
    data = few["classification", "en"]
    gold = np.where(np.arange(len(data)) == 3, 1, 0)
    monkeypatch.setitem(few, ("classification", "en"), trial.replace(data, gold=gold))
    at = ask(open_on(tiny(), task="classification", orders="greedy,random"))
    assert len(at.error) == 2
    assert all("label" in error.value and "\n" not in error.value for error in at.error)
    assert not at.button(key="pruning.run").disabled
    assert "Press Run to measure this." in said(at)
    put(at, task="similarity")
    ask(at)
    assert not at.error
    assert "can go by ablation, each step" in said(at)


@pytest.mark.parametrize(
    ("link", "said_of_it"),
    [
        ({"protect": "five"}, "five names no head. Write layer.head"),
        ({"protect": "9.9"}, "There is no head L9·H9 in 3 layers x 4 heads"),
        ({"protect": "0.1,0.1"}, "Head L0·H1 is given twice"),
        ({"keep": "4"}, "Nothing may be removed"),
        ({"keep": "9"}, "Nothing may be removed"),  # as many as there are, from a link of a larger model
    ],
)
def test_limits_that_make_no_sense_are_one_sentence(tiny, few, files, link, said_of_it):
    at = open_on(tiny(), orders="random", **link)
    [error] = at.error
    assert said_of_it in error.value.replace("\\", "")
    assert all(button.disabled for button in at.button if button.key == "pruning.run")
    assert not jobs._registry().unfinished()
    ran(at.text_input(key="pruning.protect").set_value(" 0.1, 2.3 ").run())
    ran(at.number_input(key="keep.input").set_value(1).run())
    assert not at.error
    table = offered(ask(at), files)
    same(
        table,
        direct(quick(tiny(), "random", keep=1, protected=(Head(0, 1), Head(2, 3))), few["similarity", "en"]),
    )
    assert not {Head(0, 1), Head(2, 3)} & set(read_heads(table["heads"].iloc[-1]))
    assert table["removed"].max() == 9


def test_too_little_data_is_one_sentence(tiny, few, monkeypatch):
    monkeypatch.setitem(few, ("similarity", "en"), few["similarity", "en"].take(range(7)))
    at = open_on(tiny())
    [error] = at.error
    assert "has 7 examples, too few to estimate on one half and report on the other" in error.value
    assert at.button(key="pruning.run").disabled


@pytest.fixture
def held(monkeypatch):
    """The greedy order waits at a gate: an event that it is there, and the gate."""
    waits, gate, real = threading.Event(), threading.Event(), trial.path

    def path(order, *args, **options):
        if order == "greedy":
            waits.set()
            assert gate.wait(WAIT)
        return real(order, *args, **options)

    monkeypatch.setattr(trial, "path", path)
    yield waits, gate
    gate.set()


def test_a_cancelled_order_is_told_and_the_others_go_on(tiny, few, files, held):
    waits, gate = held
    at = open_on(tiny(), orders="greedy,random")
    ran(at.button(key="pruning.run").click().run())
    assert waits.wait(WAIT)
    ran(at.run())
    [bar] = at.get("progress")
    assert bar.proto.text.replace("\\", "").startswith("Pruning by ablation, each step: 0 of 100")
    assert "then: Pruning by random" in said(at)
    assert "Measuring …" in said(at)
    assert at.button(key="pruning.run").disabled
    ran(at.button(key="job.cancel").click().run())
    gate.set()
    settled(at)
    [info] = at.info
    assert info.value.replace("\\", "") == "Pruning by ablation, each step: cancelled. Run starts it anew."
    data = few["similarity", "en"]
    same(offered(at, files), direct(quick(tiny(), "random"), data))
    assert not at.button(key="pruning.run").disabled
    same(offered(ask(at), files), direct(quick(tiny(), "greedy", "random"), data))
    assert not at.info


def test_under_the_toy_there_is_nothing_to_lose():
    at = open_page(PRUNING, model="toy")
    assert [one.value for one in at.info] == [
        "The toy is untrained, so there is nothing it could lose. Choose a pretrained model at the left."
    ]
    assert not jobs._registry().unfinished()


def test_a_link_gives_the_same_page_again(tiny):
    link = {"task": "fidelity", "data": "id", "step": "0.05", "seeds": "3", "keep": "1", "protect": "0.1,2.3", "loss": "0.005",
            "orders": "entropy,random", "order": "random", "along": "7", "layer": "1", "head": "2"}  # fmt: skip
    at = ask(open_on(tiny(), **link))
    assert at.query_params == link | {"model": tiny()}
    assert at.select_slider(key="pruning.along").value == 7
    assert at.selectbox(key="pruning.order.en").value == "random"
    assert at.selectbox(key="loss.en").value == "0.005"
    assert sent(at, "grid")["chosen"] == [1, 2]
    again = open_page(PRUNING, **at.query_params)
    assert said(again) == said(at)
    odd = open_on(
        tiny(), step="7", loss="-1", seeds="0", keep="-1", orders="best,,", order="best", along="x" * 20
    )
    assert not odd.error
    assert not odd.exception


def test_own_data_is_pruned_on_and_never_in_the_link(tiny, few, files, runs_of_its_own):
    at = open_on(tiny(), orders="random")
    pairs = few["similarity", "id"]
    lines = [f"{a}\t{b}\t{grade}" for (a, b), grade in zip(pairs.texts, pairs.gold, strict=True)]
    at.text_area(key="data.paste").set_value("\n".join(lines))
    ran(at.button(key="data.paste.use").click().run())
    table = offered(ask(at), files)
    same(table, direct(quick(tiny(), "random"), pairs))
    assert "data" not in at.query_params
    assert not any(pairs.texts[0][0] in value for value in at.query_params.values())
    put(at, **{"pruning.table": True})
    [copy] = (runs_of_its_own / "data").iterdir()
    assert at.code[0].value.startswith(f"python -m analysis prune {copy} --task similarity --out curve.csv")
