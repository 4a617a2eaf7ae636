"""The Ablation page against `analysis` itself: the default, every protocol, every replacement, every task."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

from analysis import significance
from analysis.datasets import Data, shipped
from analysis.experiment import Options, prepare, sweep
from analysis.importance import importance
from analysis.maps import Head, read_heads, write_heads
from analysis.outcome import best_by_layer, draft_error, halves, interactions, judge, result
from analysis.significance import interval_of_score
from dashboard import ablation_controls, cache, jobs
from dashboard.naming import interval, number, replacement_name
from tests.dashboard.test_lens_views import files, numbers_of
from tests.dashboard.test_pages import _nothing_opened_before, open_page, put, ran, said, sent, spec
from tests.tiny import save_tiny

__all__ = ["_nothing_opened_before", "files"]  # fixtures for this file too

ABLATION = "views/ablation.py"
WAIT = 120  # a bound for a hung thread, in seconds; no test measures time
REPLICATES = 400


@pytest.fixture(scope="module")
def few():
    """A few of the shipped examples of each task and language."""
    similar = {which: shipped("similarity", which).take(range(0, 72, 3)) for which in ("en", "id")}
    texts = tuple(first for first, _second in similar["en"].texts)
    labelled = shipped("classification", "en")
    return {
        **{("similarity", which): data for which, data in similar.items()},
        ("classification", "en"): labelled.take(range(0, len(labelled), len(labelled) // 40)),
        **{(task, "en"): Data("texts", texts) for task in ("masked", "fidelity")},
        **{(task, "id"): Data("texts", texts[::-1]) for task in ("masked", "fidelity")},
    }


@pytest.fixture(autouse=True)
def runs_of_its_own(monkeypatch, tmp_path, few):
    """Runs and jobs of its own for each test, little data, and few replicates, which are what takes the time."""
    monkeypatch.setenv("HEADROOM_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(ablation_controls, "_shipped", lambda task, which: few[task, which])
    monkeypatch.setattr(significance, "REPLICATES", REPLICATES)
    own = jobs._Registry()
    monkeypatch.setattr(jobs, "_registry", lambda: own)
    yield tmp_path / "runs"
    for job in own.unfinished():
        job.cancel()
    own._pool.shutdown(wait=True)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A function that gives the folder of a tiny model with a head of some kind."""
    root = tmp_path_factory.mktemp("models")

    def folder(kind="headless", **changes):
        path = root / "-".join([kind, *changes])
        return str(path if path.is_dir() else save_tiny(path, "bert", kind, **changes))

    return folder


def settled(at):
    """Run the page until nothing is being measured any more."""
    for _run in range(20):
        jobs._registry()._pool.submit(bool).result(WAIT)
        ran(at.run())
        if not jobs._registry().unfinished():
            return ran(at.run())
    raise AssertionError("the page measures without end")


def open_on(folder, **link):
    """Open the page on a model that someone opened here before."""
    cache._opened()[folder] = folder
    return open_page(ABLATION, model=folder, **link)


def ask(at):
    """Press Run, and wait for the result."""
    ran(at.button(key="ablation.run").click().run())
    return settled(at)


def direct(options, data):
    """Do an experiment as the shell does, without a record: the experiment, its predictions and its changes."""
    made = prepare(options, cache.source(*cache.parts_of(options.model)), data)
    predictions = sweep(made)
    return made, predictions, judge(made, predictions)


def titles_of(found, shape):
    """Return what each cell of the grid should say."""
    said = []
    for i, delta in enumerate(found.delta):
        q = "" if np.isnan(found.q[i]) else f" · q {number(float(found.q[i]))}"
        noise = " · smaller than noise" if found.noise[i] else ""
        shown = f"{delta:.3f}" if abs(delta) >= 0.0005 else "0.000"
        change = interval(float(delta), float(found.low[i]), float(found.high[i]))
        said.append(f"{Head(*divmod(i, shape[1]))}: {shown} · {change}{q}{noise}")
    return [said[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]


def shows(at, made, predictions, found, shape):
    """Assert that the page says of an experiment what was found of it: the summary and the grid of changes."""
    main = made.problem.metrics[0]
    score = interval_of_score(main, predictions[main.name][0], made.problem.gold)
    assert f"**{interval(*score)}** on {found.examples} examples." in said(at)
    clear = found.delta[~found.noise]
    assert f"**{len(clear)} of {len(found.delta)} heads** " in said(at)
    assert f": {(clear < 0).sum()} for the worse, {(clear > 0).sum()} for the better." in said(at)
    grid = sent(at, "grid")
    assert [[cell[3] for cell in row] for row in grid["cells"]] == titles_of(found, shape)
    assert [[cell[4] == "pale" for cell in row] for row in grid["cells"]] == found.noise.reshape(
        shape
    ).tolist()
    assert grid["chosen"] == list(divmod(int(np.abs(found.delta).argmax()), shape[1]))
    replaced = replacement_name(made.options.replacement)
    assert said(at).count(f"replaced by {replaced}") >= 2  # of the grid, and of the picture beside it


def table_of(made, found, scores=None):
    """Return what the files should hold: the result, what is noise, and importance where there is one."""
    table = result(made, found).assign(noise=found.noise)
    return table if scores is None else table.join(scores.drop(columns=["layer", "head"]))


def offered(at, files, name):
    """Return the table that a button of the page offers."""
    data = io.BytesIO(files(at)[name])
    return pd.read_parquet(data) if name.endswith("parquet") else pd.read_csv(data, dtype={"heads": str})


def same(first, second):
    """Assert that two tables hold the same, whatever stands for nothing."""
    plain = [table.astype(dict.fromkeys(table.select_dtypes("number"), float)) for table in (first, second)]
    pd.testing.assert_frame_equal(*plain, rtol=0, atol=1e-9)


def test_the_default_runs_by_itself_and_its_numbers_are_those_of_analysis(few, files, runs_of_its_own):
    at = open_page(ABLATION)
    assert len(jobs._registry().unfinished()) == 1
    assert "Under way: other pages can be used meanwhile." in said(at)
    assert [bar.proto.text.split(":")[0] for bar in at.get("progress")] == ["Ablating"]
    settled(at)
    data = few["similarity", "en"]
    made, predictions, found = direct(Options("sample:en", "similarity"), data)
    shows(at, made, predictions, found, (6, 12))
    assert "Nothing was estimated, so all of the data is reported on." in said(at)
    assert dict(at.query_params) == {}
    assert at.button(key="ablation.run").disabled
    bars = spec(at)["data"][0]
    order = np.argsort(found.delta, kind="stable")
    np.testing.assert_allclose(numbers_of(bars["y"]), found.delta[order], atol=1e-9)
    error = numbers_of(bars["error_y"]["array"]), numbers_of(bars["error_y"]["arrayminus"])
    np.testing.assert_allclose(error[0], (found.high - found.delta)[order], atol=1e-9)
    np.testing.assert_allclose(error[1], (found.delta - found.low)[order], atol=1e-9)
    scores = importance(made.problem, which=halves(made)[0].tolist()).frame()
    wanted = table_of(made, found, scores)
    base = "ablation-similarity-single-spearman"
    there = files(at)
    assert list(there) == [f"{base}.csv", f"{base}.parquet", f"{base}.html"]
    assert b"plotly" in there[f"{base}.html"]
    for name in (f"{base}.csv", f"{base}.parquet"):
        table = offered(at, files, name)
        assert table.columns.tolist() == wanted.columns.tolist()
        np.testing.assert_allclose(table["importance"], wanted["importance"], rtol=1e-4)
        same(table.drop(columns=list(scores)[2:]), wanted.drop(columns=list(scores)[2:]))
    [folder] = runs_of_its_own.iterdir()
    same(pd.read_csv(folder / "result.csv", dtype={"heads": str}), result(made, found))
    put(at, **{"ablation.table": True, "ablation.repeat": True})
    shown, runs = (frame.value for frame in at.dataframe)
    assert shown["name"].tolist() == [str(Head(*divmod(i, 12))) for i in range(72)]
    same(shown[list(result(made, found))], result(made, found).round(6))
    assert runs["folder"].tolist() == [str(folder)]
    assert runs["finished"].tolist() == [True]
    assert (
        at.code[0].value == made.options.command() == json.loads((folder / "run.json").read_text())["command"]
    )


@pytest.mark.parametrize("replacement", ["zero", "mean", "uniform"])
@pytest.mark.parametrize("protocol", ["single", "all-but-one"])
def test_a_grid_of_changes(protocol, replacement, tiny, few, files):
    at = ask(open_on(tiny(), protocol=protocol, replace=replacement, data="id"))
    options = Options("sample:id", "similarity", model=tiny(), protocol=protocol, replacement=replacement)
    made, predictions, found = direct(options, few["similarity", "id"])
    shows(at, made, predictions, found, (3, 4))
    half = replacement == "mean"
    assert found.examples == (12 if half else 24)
    assert ("A random half of the data (seed 0) was estimated on" in said(at)) == half
    assert ("Nothing was estimated" in said(at)) == (not half)
    if protocol == "single":
        return
    layers = best_by_layer(made, predictions)
    assert f"**{layers['noise'].sum()} of 3 layers** can be left with one head" in said(at)
    np.testing.assert_allclose(numbers_of(spec(at)["data"][0]["y"]), layers["delta"], atol=1e-9)
    same(offered(at, files, "ablation-similarity-all-but-one-spearman-layers.csv"), layers)
    assert spec(at)["data"][0]["x"] == [
        str(Head(i, k)).replace("·", "·") for i, k in enumerate(layers["kept"])
    ]


def test_a_set_of_heads(tiny, few):
    at = ask(open_on(tiny(), protocol="set", heads="2.3,0.1"))
    options = Options("sample:en", "similarity", model=tiny(), protocol="set", heads="2.3,0.1")
    _made, _predictions, found = direct(options, few["similarity", "en"])
    change = interval(float(found.delta[0]), float(found.low[0]), float(found.high[0]))
    noise = ": smaller than noise" if found.noise[0] else ""
    assert f"With 2 heads off it changes by **{change}**, p {number(float(found.p[0]))}{noise}." in said(at)
    assert sent(at, "switches")["off"] == ["0.1", "2.3"]
    np.testing.assert_allclose(numbers_of(spec(at)["data"][0]["y"]), found.delta)
    put(at, metric="pearson")
    assert "Whole model: Pearson **" in said(at)


def test_pairs_of_heads(tiny, few, files):
    at = ask(open_on(tiny(), protocol="pairs", heads="2.3,0.1,1.0"))
    options = Options("sample:en", "similarity", model=tiny(), protocol="pairs", heads="2.3,0.1,1.0")
    made, predictions, found = direct(options, few["similarity", "en"])
    pairs = interactions(made, predictions)
    clear = found.delta[~found.noise]
    assert f"**{len(clear)} of 3 pairs** change it beyond noise" in said(at)
    stand_in = (~pairs["noise"] & (pairs["beyond"] < 0)).sum()
    assert f"**{stand_in} of 3 pairs** stand in for each other" in said(at)
    bars = spec(at)["data"][0]
    worst = pairs.iloc[np.argsort(pairs["beyond"], kind="stable")]
    np.testing.assert_allclose(numbers_of(bars["y"]), worst["beyond"], atol=1e-9)
    assert bars["x"] == [" ".join(map(str, read_heads(heads))) for heads in worst["heads"]]
    same(offered(at, files, "ablation-similarity-pairs-spearman-pairs.csv"), pairs)
    same(offered(at, files, "ablation-similarity-pairs-spearman.csv"), table_of(made, found))
    put(at, **{"ablation.table": True})
    assert at.dataframe[0].value["heads"].tolist() == [write_heads(mask) for mask in made.masks[1:4]]


def test_a_draft_says_its_measured_error(tiny, few):
    at = ask(open_on(tiny(), precision="draft"))
    options = Options("sample:en", "similarity", model=tiny(), precision="draft")
    made, predictions, found = direct(options, few["similarity", "en"])
    shows(at, made, predictions, found, (3, 4))
    wrong = draft_error(made, predictions)
    assert wrong.change > 0
    assert (
        f"Draft**: against full precision on 8 variants and 24 examples, changes are off by at most "
        f"{number(wrong.change)}." in said(at)
    )
