"""The Ablation page by its tasks and views: what each can say, and what it says of importance and other measures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import analysis.collection
import dashboard.components.grid as grid_module
from analysis.control import control
from analysis.experiment import Options
from analysis.importance import importance
from analysis.maps import Head
from analysis.outcome import halves, judge
from analysis.roles import NO_ROLE, RULES, roles
from dashboard import ablating, cache, keys
from dashboard.naming import gradient_name, interval, measure_name, metric_name
from tests.dashboard.test_ablation_page import (
    ABLATION,
    ask,
    direct,
    few,
    offered,
    open_on,
    runs_of_its_own,
    same,
    settled,
    shows,
    table_of,
    tiny,
    titles_of,
)
from tests.dashboard.test_compare_page import grids, titles
from tests.dashboard.test_heads import group, quick
from tests.dashboard.test_lens_views import files, numbers_of, press
from tests.dashboard.test_pages import _nothing_opened_before, click, open_page, put, ran, said, sent, spec

__all__ = ["_nothing_opened_before", "click", "few", "files", "press", "runs_of_its_own", "tiny"]  # fixtures

NUMBERED = ("0", "1")  # labels that a classifier without names for its classes knows


@pytest.fixture(autouse=True)
def _measured_quickly(monkeypatch):
    monkeypatch.setattr(analysis.collection, "summarise", quick)


def views_of(at):
    """Return the views that can be chosen beside the grid."""
    return [option.content for option in group(at, "against.en").proto.options]


def in_other(at, name):
    """Choose the score that the page looks at."""
    return ran(at.selectbox(key="metric.en").set_value(name).run())


# Tasks


def test_fidelity_has_no_test_and_no_importance(tiny, few, files):
    at = ask(open_on(tiny(), task="fidelity"))
    options = Options("sample:en", "fidelity", model=tiny())
    made, predictions, found = direct(options, few["fidelity", "en"])
    shows(at, made, predictions, found, (3, 4))
    assert np.isnan(found.p).all()
    assert (found.delta < 0).any()
    assert (
        "Fidelity can only fall, so each change has its interval and no test, and there is no importance."
        in said(at)
    )
    assert " · q " not in said(at)
    top = int(np.abs(found.delta).argmax())
    change = interval(*(float(values[top]) for values in (found.delta, found.low, found.high)))
    assert (
        f"**{Head(*divmod(top, 4))}** {change} · {'smaller than noise' if found.noise[top] else 'no test'}"
        in said(at)
    )
    assert views_of(at) == ["ranked", "measure", "control"]
    table = offered(at, files, "ablation-fidelity-single-cosine.csv")
    same(table, table_of(made, found))
    assert table[["p", "q"]].isna().all(axis=None)
    assert not {"importance", "signed"} & set(table)
    put(at, against="importance")  # by a link
    assert "ranked" in str(group(at, "against.en").value)
    assert not at.error


def test_a_ready_classifier_is_scored_on_all_of_the_data(tiny, few, files, monkeypatch):
    data = replace(few["classification", "en"], labels=NUMBERED)
    monkeypatch.setitem(few, ("classification", "en"), data)
    folder = tiny("classification")
    at = ask(open_on(folder, task="classification"))
    made, predictions, found = direct(Options("sample:en", "classification", model=folder), data)
    shows(at, made, predictions, found, (3, 4))
    assert found.examples == len(data)
    assert "Nothing was estimated" in said(at)
    assert "one is fitted" not in said(at)
    for number, metric in enumerate(made.problem.metrics):
        in_other(at, metric.name)
        one = judge(made, predictions, number)
        assert f"Whole model: {metric_name(metric.name)} **" in said(at)
        assert [[cell[3] for cell in row] for row in sent(at, "grid")["cells"]] == titles_of(one, (3, 4))
        table = offered(at, files, f"ablation-classification-single-{metric.name}.csv")
        np.testing.assert_allclose(table["delta"], one.delta, atol=1e-9)


def test_the_bundled_model_gets_a_classifier_fitted_on_half_of_the_data(few):
    at = ask(open_page(ABLATION, task="classification"))
    data = few["classification", "en"]
    made, predictions, found = direct(Options("sample:en", "classification"), data)
    assert found.examples == len(data) - len(data) // 2 < len(data)
    shows(at, made, predictions, found, (6, 12))
    assert "A random half of the data (seed 0) was estimated on; the other half is reported on." in said(at)
    assert "This checkpoint has no classifier: one is fitted on the other part of the data." in said(at)
    assert at.selectbox(key="data.en").options == [f"English, {len(data)} (shipped)"]


def test_labels_that_the_classifier_does_not_know_are_one_sentence(tiny):
    at = ask(open_on(tiny("classification"), task="classification"))
    assert len(at.error) == 1
    assert "but the classes of" in at.error[0].value
    assert "Measuring …" not in said(at)
    assert not at.button(key="ablation.run").disabled


def test_masked_words_are_offered_where_the_model_guesses_them(tiny, few):
    at = ask(open_on(tiny("masked"), task="masked"))
    made, predictions, found = direct(
        Options("sample:en", "masked", model=tiny("masked")), few["masked", "en"]
    )
    shows(at, made, predictions, found, (3, 4))
    assert "Whole model: log-likelihood of a word (nats) **" in said(at)
    other = open_on(tiny(), task="masked")
    box = other.selectbox(key="task.en")
    assert box.options == ["similarity", "classification", "fidelity"]
    assert box.value == "similarity"
    ask(other)
    assert "Whole model: Spearman **" in said(other)


def test_the_toy_shows_the_control():
    at = settled(open_page(ABLATION, model="toy"))
    assert "The toy is untrained, so there is nothing it could lose." in at.info[0].value
    assert "Found right: **8 of 8 heads**" in said(at)
    planted = control()
    right, found = grids(at)
    words = {"useful": "use", "idle": "idle", "twin": "twin"}
    assert [[cell[2] for cell in row] for row in right["cells"]] == [
        [words[k] for k in row] for row in planted.truth
    ]
    _control, _made, changes = ablating.ask_control()
    assert changes.examples == ablating.CONTROL_EXAMPLES == len(planted.data)
    pale = np.array([[cell[4] == "pale" for cell in row] for row in found["cells"]])
    np.testing.assert_array_equal(~pale, planted.truth == "useful")
    shown = [[float(title.split(": ")[1].split(" ")[0]) for title in row] for row in titles(found)]
    np.testing.assert_allclose(shown, changes.delta.reshape(2, 4), atol=5.1e-4)
    assert "ablation.run" not in {button.key for button in at.button}
    assert dict(at.query_params) == {"model": "toy"}


# Views


def told(at):
    """Return the name, the number of heads and the value of the rank correlation, and that it lies in its interval."""
    [line] = [line for line in said(at).splitlines() if line.startswith("Rank correlation of ")]
    name, rest = line.removeprefix("Rank correlation of ").split(" with the ")
    value, low, high = (float(n.strip(" [],").replace("−", "-")) for n in rest.split("**")[1].split())
    assert low <= value <= high
    return name, rest.split(":")[0], value, int(rest.split("over ")[1].split()[0])


def by_hand(made, predictions, metric, which):
    """Return the change of a correlation of each variant, on some examples."""
    score = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}[metric]
    gold = made.problem.gold[which]
    scores = np.array([score(row[which], gold).statistic for row in predictions[metric]])
    return scores[1:] - scores[0]


@pytest.mark.parametrize("metric", ["spearman", "pearson"])
def test_importance_is_correlated_as_scipy_does(metric, tiny, few):
    at = put(ask(open_on(tiny())), against="importance")
    in_other(at, metric)
    made, predictions, _found = direct(
        Options("sample:en", "similarity", model=tiny()), few["similarity", "en"]
    )
    first, second = halves(made)
    scores = importance(made.problem, which=first.tolist()).frame()
    delta = by_hand(made, predictions, metric, second)
    for name in keys.GRADIENT.options:
        put(at, gradient=name)
        signed = name == "signed"  # which predicts the change itself, not the loss
        value = stats.spearmanr(scores[name], delta if signed else -delta).statistic
        what = "change of score" if signed else "loss of score"
        assert told(at) == (gradient_name(name), what, pytest.approx(value, abs=5.1e-4), 12)
        dots = spec(at)["data"][0]
        np.testing.assert_allclose(numbers_of(dots["x"]), scores[name], rtol=1e-4, atol=1e-8)
        np.testing.assert_allclose(numbers_of(dots["y"]), delta, atol=1e-9)
        title = spec(at)["layout"]["yaxis"]["title"]["text"]
        assert title == f"change of {metric_name(metric)}"
    assert "from the gradients of one half of the examples, the exact change on the other" in said(at)


def test_a_measure_is_correlated_as_scipy_does(tiny, few):
    at = settled(put(ask(open_on(tiny())), against="measure"))
    data = few["similarity", "en"]
    _made, _predictions, found = direct(Options("sample:en", "similarity", model=tiny()), data)
    measured = quick(cache.source(*cache.parts_of(tiny())), data.texts)
    letter = {rule.role: rule.letter for rule in RULES} | {NO_ROLE: ""}
    for name in ("entropy_normalised", "previous", "cls"):
        put(at, measure=name)
        x = measured.table(name).ravel()
        value = stats.spearmanr(x, -found.delta).statistic
        assert told(at) == (measure_name(name), "loss of score", pytest.approx(value, abs=5.1e-4), 12)
        dots = spec(at)["data"][0]
        np.testing.assert_allclose(numbers_of(dots["x"]), x, atol=1e-6)
        np.testing.assert_allclose(numbers_of(dots["y"]), found.delta, atol=1e-9)
        assert dots["text"] == [letter[role] for role in roles(measured).ravel()]
    put(at, measure="induction")  # as the Heads page may leave it: not of these texts
    assert told(at)[0] == measure_name("entropy_normalised")


def test_the_control_stands_beside_an_experiment(tiny):
    at = settled(put(ask(open_on(tiny())), against="control"))
    assert "Found right: **8 of 8 heads**" in said(at)
    assert len(grids(at)) == 3
    assert "Whole model: Spearman" in said(at)


def test_clicks_choose_a_head_and_say_its_change(click, press, tiny, few):
    at = ask(open_on(tiny()))
    _made, _predictions, found = direct(
        Options("sample:en", "similarity", model=tiny()), few["similarity", "en"]
    )
    order = np.argsort(found.delta, kind="stable")

    def is_chosen(place):
        head = Head(*divmod(int(place), 4))
        change = interval(*(float(values[place]) for values in (found.delta, found.low, found.high)))
        assert f"**{head}** {change} · q " in said(at)
        assert sent(at, "grid")["chosen"] == [head.layer, head.index]
        assert (at.query_params["layer"], at.query_params["head"]) == (str(head.layer), str(head.index))

    press(at, grid_module, "_GRID", "ablation.grid", {"layer": 2, "head": 1, "number": 1})
    is_chosen(9)
    click(at, "ablation.ranked", 3)
    is_chosen(order[3])
    put(at, against="importance")
    click(at, "ablation.against", 5)
    is_chosen(5)
    for nothing in (None, 12, -1):
        click(at, "ablation.against", nothing)
        is_chosen(5)
    assert pd.Series(spec(at)["data"][0]["marker"]["symbol"]).str.startswith("diamond").tolist() == [
        i == 5 for i in range(12)
    ]
