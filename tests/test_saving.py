"""A smaller model as a folder: whole or not at all, never over something, and it says what it is."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from analysis.messages import ModelError
from analysis.models import open_model
from analysis.probe import Probe, run
from analysis.saving import CARD, SaveError, heads_of_curve, save_model, smaller, write_folder
from analysis.surgery import sizes
from tests import tiny
from tests.conftest import ROOT
from tests.test_surgery import UNEVEN, mask_of

NAMES = ("0.1", "0.2", "1.0", "1.1", "1.2", "1.3", "2.0")  # of the heads in UNEVEN


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A tiny classifier, shared: nothing may change it."""
    return open_model(
        str(tiny.save_tiny(tmp_path_factory.mktemp("tiny") / "whole", "bert", "classification"))
    )


@pytest.fixture
def small(whole):
    """The same without some heads, one whole layer among them."""
    return smaller(whole, UNEVEN)


def said(model):
    """Return what a model says of a padded batch."""
    with torch.no_grad():
        return run(model.network, tiny.batch_of(model.network, [9, 4]), Probe()).logits


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refused(folder, make, *said):
    """Assert that ``make`` raises one sentence that names the folder and says all this."""
    with pytest.raises(SaveError) as caught:
        make()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(folder) in sentence
    assert all(part in sentence for part in said)


# Where it may be written


@pytest.mark.parametrize("name", ["config.json", ".hidden", "deeper/file"])
def test_a_folder_that_holds_something_is_refused_and_left_as_it_is(small, tmp_path, name):
    target = tmp_path / "target"
    (target / name).parent.mkdir(parents=True)
    (target / name).write_text("mine")
    refused(target, lambda: save_model(small, target), "is not empty", "Name another folder")
    assert (target / name).read_text() == "mine"
    assert left_in(tmp_path) == ["target"]


def test_a_file_in_its_place_is_refused(small, tmp_path):
    (tmp_path / "target").write_text("mine")
    refused(tmp_path / "target", lambda: save_model(small, tmp_path / "target"), "is not empty")
    assert (tmp_path / "target").read_text() == "mine"
    refused(tmp_path, lambda: save_model(small, tmp_path / "target" / "below"), "cannot be written")
    assert left_in(tmp_path) == ["target"]


def test_a_name_that_no_disk_takes_is_refused(small, tmp_path):
    refused(tmp_path, lambda: save_model(small, tmp_path / ("x" * 300)), "cannot be written", "too long")


@pytest.mark.parametrize("place", ["new", "new/and/deeper", "there", ".", "dots/../there"])
def test_a_new_or_an_empty_folder_is_written(small, tmp_path, monkeypatch, place):
    (tmp_path / "there").mkdir()
    (tmp_path / "dots").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    target = Path(".") if place == "." else tmp_path / place
    save_model(small, target)
    here = (tmp_path / "there" if place == "." else target).resolve()
    assert torch.equal(said(open_model(str(here))), said(small))
    assert not list(tmp_path.rglob(".*")), "nothing stays beside it"


# A full disk and a kill


def full(*_args, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "where",
    ["network.save_pretrained", "tokenizer.save_pretrained", "Path.write_text", "Path.rename", "half"],
)
def test_a_full_disk_leaves_nothing(small, tmp_path, monkeypatch, where):
    owners = {"network": small.network, "tokenizer": small.tokenizer, "Path": Path}
    with monkeypatch.context() as patch:
        if where == "half":
            real = small.network.save_pretrained

            def half(folder):
                real(folder)
                weights = Path(folder) / "model.safetensors"
                weights.write_bytes(weights.read_bytes()[:1000])
                full()

            patch.setattr(small.network, "save_pretrained", half)
        else:
            owner, name = where.split(".")
            patch.setattr(owners[owner], name, full)
        refused(
            tmp_path / "target", lambda: save_model(small, tmp_path / "target"), "No space left on device"
        )
        assert left_in(tmp_path) == []
    save_model(small, tmp_path / "target")
    assert torch.equal(said(open_model(str(tmp_path / "target"))), said(small))


KILLED = """
import os, signal, sys
import numpy as np
from pathlib import Path
from analysis.models import open_model
from analysis.saving import save_model, smaller

model = open_model(sys.argv[1])
heads = np.zeros((3, 4), dtype=bool)
heads[0, 1] = True
small = smaller(model, heads)
small.tokenizer.save_pretrained = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
save_model(small, Path(sys.argv[2]))
"""


def test_a_kill_leaves_nothing_that_opens_and_the_next_save_works(whole, small, tmp_path):
    target = tmp_path / "target"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(whole.folder), str(target)],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    [part] = left_in(tmp_path)
    assert part.startswith("."), "what is left hides"
    assert "model.safetensors" in left_in(tmp_path / part), "it was killed in the middle"
    with pytest.raises(ModelError, match="no folder"):
        open_model(str(target))
    with pytest.raises(ModelError, match="no tokenizer"):
        open_model(str(tmp_path / part))
    save_model(small, target)
    assert left_in(tmp_path) == ["target"]
    assert torch.equal(said(open_model(str(target))), said(small))


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json", "tokenizer.json"])
def test_what_has_only_some_files_does_not_open(small, tmp_path, missing):
    save_model(small, tmp_path / "target")
    (tmp_path / "target" / missing).unlink()
    with pytest.raises(ModelError):
        open_model(str(tmp_path / "target"))


def test_what_is_left_of_another_save_is_not_mixed_in(small, tmp_path):
    part = tmp_path / ".target.part"
    part.mkdir()
    (part / "model-00001-of-00002.safetensors").write_bytes(b"old")
    save_model(small, tmp_path / "target")
    assert left_in(tmp_path) == ["target"]
    assert "model-00001-of-00002.safetensors" not in left_in(tmp_path / "target")


def test_an_error_of_any_kind_leaves_nothing(tmp_path):
    def write(part):
        (part / "some").write_text("x")
        raise ValueError("first line\nsecond line")

    refused(tmp_path / "target", lambda: write_folder(tmp_path / "target", write), "first line")
    assert left_in(tmp_path) == []


# What it says


def test_the_card_says_what_is_gone_what_it_costs_and_how_to_load_it(whole, small, tmp_path):
    numbers = {"Spearman on STS-B": "0.871 [0.861, 0.880]", "latency": "−31% (whole 20 ms)"}
    save_model(small, tmp_path / "small", whole=whole, numbers=numbers)
    card = (tmp_path / "small" / CARD).read_text(encoding="utf-8")
    assert card.startswith("# whole without 7 of 12 attention heads\n")
    rows = dict(re.findall(r"^\| (.+?) \| (.*) \|$", card, flags=re.MULTILINE))
    before, after = sizes(whole.network), sizes(small.network)
    for label, name in (("parameters", "parameters"), ("bytes", "bytes"),
                        ("multiply-adds at 64 tokens", "products")):  # fmt: skip
        was, now = getattr(before, name), getattr(after, name)
        assert now < was
        assert rows[label] == f"{now:,} of {was:,} ({now / was:.1%})"
    assert rows["removed heads (layer.head)"] == ",".join(NAMES)
    assert {name: rows[name] for name in numbers} == numbers
    assert "`pruned_heads`" in card
    loading = [line.strip() for line in card.splitlines() if line.startswith("    ")]
    assert len(loading) == 3
    there: dict[str, object] = {}
    exec("\n".join(loading).replace("this folder", str(tmp_path / "small")), there)
    assert torch.equal(said(there["model"]), said(small))


def test_the_card_of_full_shape_promises_no_speed(whole, tmp_path):
    save_model(whole, tmp_path / "full", full_shape=UNEVEN)
    card = (tmp_path / "full" / CARD).read_text(encoding="utf-8")
    assert "without 7 of 12 attention heads" in card
    assert "`from_pretrained`" in card
    assert "slow as the whole" in card
    assert f"| parameters | {sizes(whole.network).parameters:,} |" in card
    assert ",".join(NAMES) in card


def test_a_second_round_names_all_that_is_gone(small, tmp_path):
    save_model(smaller(small, mask_of("2.3")), tmp_path / "two")
    assert ",".join([*NAMES, "2.3"]) in (tmp_path / "two" / CARD).read_text(encoding="utf-8")
    save_model(small, tmp_path / "full", full_shape=mask_of("2.3"))
    assert ",".join([*NAMES, "2.3"]) in (tmp_path / "full" / CARD).read_text(encoding="utf-8")


def test_the_folder_holds_smaller_weights_and_names_the_heads(whole, small, tmp_path):
    save_model(small, tmp_path / "small")
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["pruned_heads"] == {"0": [1, 2], "1": [0, 1, 2, 3], "2": [0]}
    assert config["num_attention_heads"] == 4
    counts = [sum(t.numel() for t in load_file(folder / "model.safetensors").values())
              for folder in (tmp_path / "small", whole.folder)]  # fmt: skip
    assert counts == [sizes(small.network).parameters, sizes(whole.network).parameters]


# The heads of a curve


CURVE = """order,seed,removed,share,score,ci_low,ci_high,heads
importance,0,0,0.0,0.88,0.87,0.89,
importance,0,3,0.25,0.87,0.86,0.88,"0.1,2.0,2.3"
importance,0,6,0.5,0.8,0.79,0.81,"0.1,1.0,1.1,2.0,2.1,2.3"
random,0,6,0.5,0.7,0.69,0.71,"0.0,0.1,0.2,0.3,1.0,1.1"
"""


@pytest.mark.parametrize(
    ("share", "heads"),
    [(0.25, "0.1,2.0,2.3"), (0.4, "0.1,2.0,2.3"), (1.0, "0.1,1.0,1.1,2.0,2.1,2.3")],
)
def test_the_heads_of_a_curve_are_those_up_to_the_share(tmp_path, share, heads):
    (tmp_path / "curve.csv").write_text(CURVE)
    assert heads_of_curve(tmp_path / "curve.csv", share) == heads


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_a_share_at_which_a_curve_removed_nothing_is_refused(tmp_path, share):
    (tmp_path / "curve.csv").write_text(CURVE)
    with pytest.raises(SaveError, match=f"At the share {share} .* Ask for a larger --share"):
        heads_of_curve(tmp_path / "curve.csv", share)


@pytest.mark.parametrize("content", [None, "", "layer,head\n0,1\n", "order,seed,share,heads\n", "\0\0"])
def test_what_is_no_curve_is_refused(tmp_path, content):
    path = tmp_path / "curve.csv"
    if content is not None:
        path.write_text(content)
    refused(path, lambda: heads_of_curve(path, 0.5), "is no curve of a pruning run")


def test_saving_changes_nothing(whole, small, tmp_path):
    before = {name: tensor.clone() for name, tensor in whole.network.state_dict().items()}
    config = whole.network.config.to_dict()
    save_model(small, tmp_path / "small", whole=whole)
    save_model(whole, tmp_path / "full", full_shape=UNEVEN)
    assert whole.network.config.to_dict() == config
    assert all(torch.equal(whole.network.state_dict()[name], tensor) for name, tensor in before.items())
    np.testing.assert_array_equal(whole.gone, False)
