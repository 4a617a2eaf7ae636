"""The Pruning page against `analysis` itself: the curves, the slider along one, a cancelled order."""

from __future__ import annotations

import io
import threading

import numpy as np
import pandas as pd
import pytest

from analysis import trial
from analysis.curves import knee
from analysis.datasets import split
from analysis.maps import Head
from analysis.pruning import ORDERS, Limits
from analysis.trial import Options
from dashboard import cache, jobs
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
