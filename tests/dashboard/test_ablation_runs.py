"""The Ablation page over time: cancelled and gone on with, found again, shared, damaged, and told by a link."""

from __future__ import annotations

import json
import shutil
import threading

import numpy as np
import pandas as pd
import pytest

from analysis import experiment
from analysis.experiment import Options
from dashboard import ablating, jobs, keys
from tests.dashboard.test_ablation_page import (
    ABLATION,
    WAIT,
    ask,
    direct,
    few,
    open_on,
    runs_of_its_own,
    settled,
    shows,
    tiny,
)
from tests.dashboard.test_heads import bars, there
from tests.dashboard.test_pages import ATTENTION, _nothing_opened_before, open_page, put, ran, said, sent

__all__ = ["_nothing_opened_before", "few", "runs_of_its_own", "tiny"]  # fixtures for this file too

SHARD = 7  # so that 24 examples are four shards
LINK = {
    "task": "classification",
    "protocol": "pairs",
    "replace": "uniform",
    "precision": "draft",
    "metric": "matthews",
    "against": "measure",
    "gradient": "signed",
    "measure": "cls",
    "layer": "1",
    "head": "2",
    "heads": "0.1,2.3",
}


@pytest.fixture
def passes(monkeypatch):
    """Predictions in small shards: how many examples each pass computes, and a gate that they wait at."""
    real = experiment.predict

    class Passes:
        counts: list[int] = []  # noqa: RUF012
        stop_at = None  # the number of a pass that waits
        waits, gate = threading.Event(), threading.Event()

        @classmethod
        def predict(cls, made, variants, which, tell=None):
            if len(cls.counts) == cls.stop_at:
                cls.waits.set()
                assert cls.gate.wait(WAIT)
                tell(0.0)  # where a cancelled job ends
            cls.counts.append(len(which))
            return real(made, variants, which, tell)

    Passes.counts = []
    monkeypatch.setattr(experiment, "SHARD", SHARD)
    monkeypatch.setattr(experiment, "predict", Passes.predict)
    yield Passes
    Passes.gate.set()


def begin(at, passes, stop_at):
    """Press Run, and come back when some passes are done and the next one waits."""
    passes.stop_at = stop_at
    at.button(key="ablation.run").click()
    ran(at.run())
    assert passes.waits.wait(WAIT)
    return ran(at.run())


def forget(at):
    """Forget all jobs, as a server that is started again has, and draw the page anew."""
    for key in list(jobs._registry()._jobs):
        jobs.forget(key)
    return ran(at.run())


def grid_of(at):
    return [[cell[3] for cell in row] for row in sent(at, "grid")["cells"]]


def expected(tiny, few):
    return direct(Options("sample:en", "similarity", model=tiny()), few["similarity", "en"])


# Cancel, and go on


def test_the_page_says_what_is_under_way(tiny, few, passes):
    at = begin(open_on(tiny()), passes, 2)
    assert "Under way: other pages can be used meanwhile." in said(at)
    assert "Measuring …" in said(at)
    assert at.button(key="ablation.run").disabled
    [bar] = bars(at)
    assert bar.startswith("Ablating: 12 variants on 24 examples: 14 of 30")
    at.switch_page(ATTENTION)
    ran(at.run())
    assert len(bars(at)) == 1
    assert at.get("plotly_chart")  # which answers meanwhile
    at.switch_page(ABLATION)
    passes.gate.set()
    settled(at)
    assert "Whole model: Spearman" in said(at)
    assert bars(at) == []


def test_a_cancelled_run_goes_on_from_what_was_finished(tiny, few, passes, runs_of_its_own):
    at = begin(open_on(tiny()), passes, 2)
    ran(at.button(key="job.cancel").click().run())
    passes.gate.set()
    settled(at)
    assert [info.value for info in at.info] == [
        "Cancelled. What was finished is kept: Run goes on from there."
    ]
    assert "Whole model" not in said(at)
    assert "Measuring …" not in said(at)
    assert passes.counts == [7, 7]
    [folder] = runs_of_its_own.iterdir()
    assert len(list((folder / "units").iterdir())) == 2 * 4
    assert not (folder / "result.csv").exists()
    ran(at.run())
    assert passes.counts == [7, 7]  # nobody goes on unasked
    passes.stop_at = None
    ask(at)
    assert passes.counts == [7, 7, 7, 3]
    assert list(runs_of_its_own.iterdir()) == [folder]
    made, predictions, found = expected(tiny, few)
    shows(at, made, predictions, found, (3, 4))


def test_cancelled_before_its_turn(tiny, passes):
    first = begin(open_on(tiny()), passes, 0)
    second = open_on(tiny(), replace="uniform")
    ran(second.button(key="ablation.run").click().run())
    assert "then: Ablating: 12 variants on 24 examples" in said(second)
    ran(second.button(key="job.cancel.1").click().run())
    assert "Cancelled. What was finished is kept: Run goes on from there." in second.info[0].value
    passes.gate.set()
    settled(first)
    assert "Whole model: Spearman" in said(first)
    passes.stop_at = None
    ask(second)
    assert "replaced by uniform attention" in said(second)


# Found again


def test_a_run_is_found_again_when_its_job_is_forgotten(tiny, passes, runs_of_its_own):
    at = ask(open_on(tiny()))
    first, runs = grid_of(at), sorted(runs_of_its_own.iterdir())
    assert sum(passes.counts) == 24
    forget(at)
    assert "Press Run to measure this." in said(at)
    ask(at)
    assert sum(passes.counts) == 24  # nothing is computed anew
    assert grid_of(at) == first
    assert sorted(runs_of_its_own.iterdir()) == runs
    other = ask(put(open_on(tiny()), replace="uniform"))
    assert sum(passes.counts) == 48
    assert grid_of(other) != first


def test_a_unit_that_was_lost_is_computed_again_alone(tiny, passes, runs_of_its_own):
    at = ask(open_on(tiny()))
    first = grid_of(at)
    [folder] = runs_of_its_own.iterdir()
    (folder / "units" / "L001-S00002.npz").unlink()
    ask(forget(at))
    assert passes.counts == [7, 7, 7, 3, 7]
    assert grid_of(at) == first


def test_a_damaged_unit_is_one_sentence_and_the_remedy_works(tiny, passes, runs_of_its_own):
    at = ask(open_on(tiny()))
    [folder] = runs_of_its_own.iterdir()
    unit = folder / "units" / "L001-S00002.npz"
    unit.write_bytes(unit.read_bytes()[:50])
    ask(forget(at))
    assert len(at.error) == 1
    assert "Delete its file, and it is computed again." in at.error[0].value
    unit.unlink()
    ask(at)
    assert "Whole model: Spearman" in said(at)


def test_other_weights_are_another_run(tiny, passes, runs_of_its_own, tmp_path):
    folder = shutil.copytree(tiny(), tmp_path / "model")
    at = ask(open_on(str(folder)))
    shutil.copy(f"{tiny('headless', initializer_range=0.2)}/model.safetensors", folder)
    ask(forget(at))
    assert sum(passes.counts) == 48
    assert len(list(runs_of_its_own.iterdir())) == 2


def test_two_sessions_share_one_run(tiny, passes, runs_of_its_own):
    first = begin(open_on(tiny()), passes, 1)
    second = open_on(tiny())
    assert "Under way" in said(second)
    assert second.button(key="ablation.run").disabled
    passes.gate.set()
    settled(first)
    settled(second)
    assert grid_of(first) == grid_of(second)
    assert sum(passes.counts) == 24
    assert len(list(runs_of_its_own.iterdir())) == 1


def test_what_fails_says_why_and_can_be_asked_again(tiny, monkeypatch):
    at = open_on(tiny())
    with monkeypatch.context() as patch:

        def fail(*_given):
            raise ValueError("secret")

        patch.setattr(ablating, "run", fail)
        ask(at)
    assert [error.value for error in at.error] == [
        "This did not work (ValueError). The server's log has the details."
    ]
    ask(at)
    assert len(at.error) == 0
    assert "Whole model: Spearman" in said(at)


def test_all_runs_are_listed_and_what_is_no_run_is_passed_over(tiny, passes, runs_of_its_own):
    at = begin(open_on(tiny()), passes, 2)
    ran(at.button(key="job.cancel").click().run())
    passes.gate.set()
    settled(at)
    for name, text in (("broken", "{"), ("other", json.dumps({"format": 99})), ("list", "[]")):
        (runs_of_its_own / name).mkdir()
        (runs_of_its_own / name / "run.json").write_text(text)
    passes.stop_at = None
    ask(put(at, replace="uniform"))
    put(at, **{"ablation.repeat": True})
    table = at.dataframe[-1].value
    assert table["finished"].tolist() == [True, False]
    assert table["replacement"].tolist() == ["uniform", "zero"]
    assert pd.to_datetime(table["begun"]).is_monotonic_decreasing


# Links


def test_only_the_first_default_runs_by_itself(tiny, few):
    at = open_page(ABLATION, protocol="all-but-one")
    assert "Press Run to measure this." in said(at)
    assert jobs._registry().unfinished() == []
    at = ask(open_on(tiny()))
    assert len(jobs._registry()._jobs) == 1
    ran(at.selectbox(key="model.box.en").set_value("bundled").run())
    assert "Press Run to measure this." in said(at)  # this session asked for something before
    assert jobs._registry().unfinished() == []


def test_a_link_and_back(tiny, few):
    at = open_on(tiny(), **LINK)
    assert dict(at.query_params) == LINK | {"model": tiny()}
    ask(at)
    assert dict(at.query_params) == LINK | {"model": tiny()}
    assert "Whole model: Matthews **" in said(at)
    assert "**Draft**" in said(at)
    again = open_on(tiny(), **LINK)
    assert (said(again), dict(again.query_params)) == (said(at), dict(at.query_params))
    put(at, **{choice.key: choice.default for choice in keys.CHOICES}, heads=None, layer=None, head=None)
    assert dict(at.query_params) == {"model": tiny()}
    assert not at.error


@pytest.mark.parametrize("value", ["", "x" * 5000, "<script>", "own", "99", "..", "%00"])
def test_a_link_that_says_nonsense_gives_the_defaults(value, tiny):
    at = open_on(tiny(), **dict.fromkeys((*LINK, "data"), value))
    assert at.selectbox(key="task.en").value == "similarity"
    assert at.selectbox(key="data.en").value == "en"
    assert "Press Run to measure this." in said(at)
    ask(at)
    assert "Whole model: Spearman" in said(at)
    assert np.shape(grid_of(at)) == (3, 4)
    assert not {"data", "task", "protocol"} & set(at.query_params)
    assert "data.paste.use" in there(at)
