"""What the Pruning page can be asked: orders, limits, data and links, those that make no sense among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.maps import Head, read_heads
from analysis.pruning import NEED_LOSS, ORDERS
from dashboard import jobs, keys
from dashboard.naming import order_name
from tests.dashboard.test_ablation_page import few, runs_of_its_own, tiny
from tests.dashboard.test_lens_views import files
from tests.dashboard.test_pages import _nothing_opened_before, open_page, put, ran, said, sent
from tests.dashboard.test_pruning_page import PRUNING, ask, direct, offered, open_on, quick, same

__all__ = ["_nothing_opened_before", "few", "files", "runs_of_its_own", "tiny"]  # fixtures for this file too


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
    monkeypatch.setitem(few, ("classification", "en"), replace(data, gold=gold))
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
