"""The tasks: published values, hand-made cases, other families, and a sentence for each thing that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from analysis.ablation import evaluate, plain, single_heads
from analysis.datasets import Data, read_data, shipped, split
from analysis.messages import OptionError
from analysis.models import open_model
from analysis.tasks import set_up
from analysis.texts import FileError
from tests import tiny
from tests.conftest import ROOT

SHARED = ROOT.parent / "shared" / "data"
TEXTS = ("the cat sat on the mat", "a dog", "the cat and the dog sat", "the the the", "dog sat")
LABELS = np.array([0, 1, 0, 1, 0])


def whole(problem):
    """Return the predictions of the whole model."""
    geometry = problem.model.geometry
    nothing = np.zeros((1, geometry.layers, geometry.heads), dtype=bool)
    everything = range(len(problem.examples))
    places, rows = problem.rows_of(everything)
    kept = plain(problem.model, [problem.inputs[i] for i in places], _local(problem, places), nothing)
    return problem.predict(kept, rows, everything)


def _local(problem, places):
    return lambda outputs, batch, which: problem.read(outputs, batch, [places[i] for i in which])


def scores(problem):
    """Return every score of the whole model."""
    found = whole(problem)
    return {
        metric.name: float(metric.score(found[metric.name], problem.gold)[0]) for metric in problem.metrics
    }


def test_the_published_values_of_the_bundled_model(bundled):
    path = SHARED / "stsb-en-dev.csv"
    if not path.is_file():
        pytest.skip(f"no data at {path}")
    found = scores(set_up("similarity", bundled, read_data(str(path), "similarity", ["0", "1", "2"])))
    assert found["spearman"] == pytest.approx(0.867163, abs=1e-5)
    assert found["pearson"] == pytest.approx(0.869619, abs=1e-5)


def test_the_fine_tuned_classifier(sst2):
    path = SHARED / "sst2-dev.tsv"
    if not path.is_file():
        pytest.skip(f"no data at {path}")
    problem = set_up("classification", sst2, read_data(str(path), "classification", ["0", "1"]))
    assert (whole(problem)["accuracy"][0] == problem.gold).sum() == 769


def test_similarity_is_the_cosine_of_mean_pooled_embeddings(bundled):
    data = shipped("similarity").take(range(12))
    problem = set_up("similarity", bundled, data)
    cosines = []
    for pair in data.texts:
        sides = []
        for text in pair:
            inputs = bundled.tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                sides.append(bundled.network(**inputs).last_hidden_state[0].mean(0).numpy())
        cosines.append(sides[0] @ sides[1] / np.linalg.norm(sides[0]) / np.linalg.norm(sides[1]))
    np.testing.assert_allclose(whole(problem)["spearman"][0], cosines, atol=1e-5)
    assert scores(problem)["spearman"] == pytest.approx(spearmanr(cosines, data.gold).statistic, abs=1e-9)


def test_equal_texts_run_once(bundled):
    data = Data("pairs", (("a cat", "a dog"), ("a dog", "a cat"), ("a cat", "a cat")), np.array([1.0, 2, 5]))
    assert len(set_up("similarity", bundled, data).inputs) == 2


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_masked_words_of_every_family(tmp_path, family):
    model = open_model(str(tiny.save_tiny(tmp_path / family, family, "masked")))
    if model.tokenizer.mask_token_id is None:
        pytest.skip("this tiny tokenizer has no mask")
    problem = set_up("masked", model, Data("texts", TEXTS))
    found = whole(problem)
    example = 2
    hand = []
    for place in problem.examples[example]:
        ids = problem.inputs[place]["input_ids"]
        text = model.tokenizer(TEXTS[example])["input_ids"]
        at = [i for i, piece in enumerate(ids) if piece == model.tokenizer.mask_token_id]
        batch = {name: torch.tensor([row]) for name, row in problem.inputs[place].items()}
        with torch.no_grad():
            chances = torch.log_softmax(model.network(**batch).logits[0], -1)
        hand.append(sum(float(chances[i, text[i]]) for i in at))
    assert found["pseudo_log_likelihood"][0, example] == pytest.approx(np.mean(hand), abs=1e-4)
    assert ((found["top_1"] >= 0) & (found["top_1"] <= 1)).all()


def test_the_masked_words_depend_on_the_seed_alone(tmp_path):
    model = open_model(str(tiny.save_tiny(tmp_path / "bert", "bert", "masked")))
    data = Data("texts", TEXTS * 3)
    first, again, other = (set_up("masked", model, data, seed=seed).inputs for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_classifier_is_fitted_once_where_there_is_none(bundled):
    fit_on, report = split(shipped("classification"), seed=1)
    problem = set_up("classification", bundled, report, estimate=fit_on)
    assert "fitted" in str(problem.notes[0])
    embedding = set_up("fidelity", bundled, fit_on)
    places, rows = embedding.rows_of(range(len(fit_on)))
    nothing = np.zeros((1, 6, 12), dtype=bool)

    def embeddings(data):
        one = set_up("fidelity", bundled, data)
        return plain(one.model, one.inputs, one.read, nothing)[0][[places[0] for places in one.examples]]

    reference = LogisticRegression(max_iter=2000).fit(embeddings(fit_on), fit_on.gold)
    np.testing.assert_array_equal(whole(problem)["accuracy"][0], reference.predict(embeddings(report)))
    assert scores(problem)["accuracy"] > 0.6
    assert len(places) == len(rows)


def test_fidelity_of_the_whole_model_is_perfect_and_falls(bundled, sst2):
    data = shipped("fidelity").take(range(10))
    for model, best in ((bundled, 1.0), (sst2, 0.0)):
        problem = set_up("fidelity", model, data)
        (name,) = whole(problem)
        np.testing.assert_allclose(whole(problem)[name], best, atol=1e-6)
        kept = evaluate(problem.model, problem.inputs, problem.read, single_heads(6, 12)[:12])
        _places, rows = problem.rows_of(range(10))
        assert (problem.predict(kept, rows, range(10))[name] < best + 1e-6).all()


@pytest.mark.parametrize("task", ["similarity", "classification", "masked", "fidelity"])
def test_switching_heads_off_changes_every_task(tmp_path, task):
    kind = {"classification": "classification", "masked": "masked"}.get(task, "headless")
    model = open_model(str(tiny.save_tiny(tmp_path / kind, "bert", kind)))
    pairs = tuple(zip(TEXTS, TEXTS[::-1], strict=True))
    data = Data("data", pairs if task == "similarity" else TEXTS,
                {"similarity": np.arange(5.0), "classification": LABELS}.get(task), ("0", "1"))  # fmt: skip
    problem = set_up(task, model, data)
    kept = evaluate(problem.model, problem.inputs, problem.read, single_heads(3, 4))
    assert np.abs(kept - kept[:1]).max() > 1e-3


def test_labels_go_by_name_whatever_their_order(tmp_path):
    folder = tiny.save_tiny(tmp_path / "model", "bert", "classification",
                            id2label={0: "POSITIVE", 1: "NEGATIVE"}, label2id={"POSITIVE": 0, "NEGATIVE": 1})  # fmt: skip
    model = open_model(str(folder))
    data = Data("texts", TEXTS, LABELS, ("negative", "positive"))
    np.testing.assert_array_equal(set_up("classification", model, data).gold, 1 - LABELS)
    numbers = Data("texts", TEXTS, LABELS, ("0", "1"))
    np.testing.assert_array_equal(set_up("classification", model, numbers).gold, LABELS)
    with pytest.raises(
        OptionError, match=r"labels good, bad, but the classes of model are POSITIVE, NEGATIVE"
    ):
        set_up("classification", model, Data("texts", TEXTS, LABELS, ("good", "bad")))


def test_what_cannot_be_is_said(bundled):
    with pytest.raises(OptionError, match="cannot fill in masked words"):
        set_up("masked", bundled, Data("texts", TEXTS))
    with pytest.raises(OptionError, match="All examples have the label 1"):
        set_up("classification", bundled, Data("texts", TEXTS, np.ones(5, dtype=int), ("0", "1")))
    with pytest.raises(OptionError, match="has no classifier, and there is no other data"):
        set_up("classification", bundled, Data("texts", TEXTS, LABELS, ("0", "1")))
    with pytest.raises(OptionError, match="is one text"):
        set_up("similarity", bundled, Data("texts", TEXTS, np.arange(5.0)))


@pytest.mark.parametrize(
    ("task", "columns", "data", "sentence"),
    [
        ("similarity", ["a", "b"], "a,b\nx,y\n", "similarity reads 3 columns, but 2 are named"),
        ("classification", ["a"], "a,b\nx,y\n", "classification reads 2 or 3 columns, but 1 are named"),
        ("similarity", ["a", "b", "c"], "a,b,c\n" + "x,y,much\n" * 5, "has the grade much, which is no number"),
        ("similarity", ["a", "b", "c"], "a,b,c\n" + "x,y,nan\n" * 5, "which is no number|whole examples"),
        ("classification", ["a", "b"], "a,b\nx,1\n", "has 1 whole examples"),
        ("masked", ["z"], "a,b\n" + "x,y\n" * 5, "z is not among them"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used_gets_one_sentence(task, columns, data, sentence):
    with pytest.raises(FileError, match=sentence) as caught:
        read_data("file.csv", task, columns, data=data.encode())
    assert "\n" not in str(caught.value)


def test_data_by_name_and_by_number_and_empty_cells():
    rows = "one,yes\ntwo,no\n,yes\nthree,\nfour,yes\nfive,no\n"
    found = read_data("file.csv", "classification", ["0", "1"], data=rows.encode())
    assert found.texts == ("one", "two", "four", "five")
    assert found.labels == ("no", "yes")
    assert found.gold.tolist() == [1, 0, 1, 0]
    assert str(found.notes[0]) == "2 rows with an empty cell are left out."
    named = read_data("file.csv", "classification", ["text", "label"], data=("text,label\n" + rows).encode())
    assert named.texts == found.texts
    ten = read_data("f.csv", "classification", ["0", "1"], data=b"a,10\nb,9\nc,10\nd,2\n")
    assert ten.labels == ("2", "9", "10")
    assert read_data("lines.txt", "fidelity", [], data=b"a\nb\nc\nd\n").texts == ("a", "b", "c", "d")


def test_the_split_is_seeded_and_shares_nothing():
    data = shipped("similarity")
    first, second = split(data, seed=3)
    again = split(data, seed=3)[0]
    assert first.texts == again.texts
    assert split(data, seed=4)[0].texts != first.texts
    assert not set(first.texts) & set(second.texts)
    assert len(first) + len(second) == len(data)
    assert abs(len(first) - len(second)) <= 1


@pytest.mark.parametrize(("task", "language"), [("similarity", "en"), ("similarity", "id"), ("classification", "en"),
                                                ("masked", "en"), ("masked", "id"), ("fidelity", "en"), ("fidelity", "id")])  # fmt: skip
def test_what_ships_can_be_read(task, language):
    assert len(shipped(task, language)) >= 60
    if task == "classification":
        assert shipped(task).labels == ("negative", "positive")


def test_what_does_not_ship_is_said():
    with pytest.raises(FileError, match="No data for classification ships in id"):
        shipped("classification", "id")
