"""The Pruning page makes a smaller model real: what it says of it, where it is saved, opened here, and downloaded."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from analysis import onnx_file
from analysis.checks import apart
from analysis.maps import read_heads
from analysis.models import open_model
from analysis.onnx_file import OnnxError
from analysis.saving import smaller
from analysis.surgery import sizes, zeroed
from dashboard import cache, jobs, keys, pruning_jobs
from tests.dashboard.test_ablation_page import few, runs_of_its_own, settled, tiny
from tests.dashboard.test_lens_views import files
from tests.dashboard.test_pages import ATTENTION, _nothing_opened_before, open_page, ran, said
from tests.dashboard.test_pruning_page import ask, direct, offered, open_on, quick, same, shows
from tests.test_surgery import said as output_of
from tests.tiny import save_tiny

__all__ = ["_nothing_opened_before", "few", "files", "runs_of_its_own", "tiny"]  # fixtures for this file too


@pytest.fixture(autouse=True)
def quick_turns(monkeypatch):
    monkeypatch.setattr(pruning_jobs, "BATCHES", (1, 2))
    monkeypatch.setattr(pruning_jobs, "TURNS", 3)


@pytest.fixture
def packages(monkeypatch):
    """What an ONNX file needs seems to be there; the file says how many heads are gone."""
    monkeypatch.setattr(onnx_file, "check_packages", lambda: None)
    monkeypatch.setattr(onnx_file, "to_bytes", lambda model: str(int(model.gone.sum())).encode())


def at_step(folder, removed=6):
    """Open the page, run the greedy order, and go to where so many heads are gone."""
    at = ask(open_on(folder, orders="greedy"))
    return along(at, removed)


def along(at, removed):
    return ran(at.select_slider(key="pruning.along").set_value(removed).run())


def make_real(at):
    """Press the button, and wait for the smaller model."""
    ran(at.button(key="pruning.build").click().run())
    return settled(at)


def mask_at(folder, few, step=2):
    """Return the mask that the greedy order has at a step."""
    return direct(quick(folder, "greedy"), few["similarity", "en"])[0].path.masks[step]


def save_as(at, folder):
    at.text_input(key="pruning.folder").set_value(str(folder))
    return ran(at.button(key="pruning.save").click().run())


def buttons(at):
    return {button.key for button in at.button}


def unpacked(data, folder):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)
    return folder


def test_sizes_and_differences_are_those_of_analysis(tiny, few):
    at = at_step(tiny())
    assert at.button(key="pruning.build").label == "Make it real: remove 6 heads"
    assert "A masked model is never faster: it computes every head." in said(at)
    make_real(at)
    whole, mask = cache.source(*cache.parts_of(tiny())), mask_at(tiny(), few)
    small = smaller(whole, mask)
    before, after = sizes(whole.network), sizes(small.network)
    found = apart(whole, mask, small)
    assert (
        f"**{after.parameters:,} of {before.parameters:,} parameters** ({after.parameters / before.parameters:.1%}), "
        f"{after.products / before.products:.1%} of the multiply-adds at 64 tokens. Differs from the masked model by "
        f"{f'{found:.0e}' if found else '0'} at most." in said(at)
    )
    table = at.dataframe[0].value
    assert table["batch"].tolist() == [1, 2]
    assert set(table["arithmetic"]) == {f"{1 - after.products / before.products:.1%}"}
    assert (table[["whole (ms)", "smaller (ms)"]] > 0).all(axis=None)
    assert all(re.fullmatch(r"−?[\d.]+% \[−?[\d.]+%, −?[\d.]+%\]", cell) for cell in table.iloc[:, 3])
    assert "in turn, 3 turns, 64 tokens, one thread" in said(at)
    assert at.button(key="pruning.build").disabled
    assert not whole.gone.any(), "the model that others look at is as it was"


def test_another_step_is_another_model_and_the_first_is_kept(tiny):
    at = make_real(at_step(tiny(), 3))
    first = said(at)
    along(at, 9)
    assert "pruning.save" not in buttons(at)
    assert not at.button(key="pruning.build").disabled
    make_real(at)
    assert said(at) != first
    along(at, 3)
    assert said(at) == first
    assert not jobs._registry().unfinished()


def test_a_wrong_network_is_not_offered(tiny, monkeypatch):
    monkeypatch.setattr("analysis.saving.smaller", lambda model, mask: smaller(model, ~mask))
    at = make_real(at_step(tiny()))
    [error] = at.error
    assert "differs from the masked one by" in error.value
    assert "pruning.save" not in buttons(at)
    assert not at.button(key="pruning.build").disabled


def test_layers_that_share_weights_say_so_when_it_is_made_real(tmp_path):
    at = ask(open_on(str(save_tiny(tmp_path / "albert", "albert")), orders="random"))
    make_real(along(at, 8))
    [error] = at.error
    assert "uses one and the same layer several times: a head cannot be removed" in error.value


def test_it_is_saved_and_opened_here(tiny, few, tmp_path):
    at = make_real(at_step(tiny()))
    assert at.text_input(key="pruning.folder").value.endswith("headless-without-6-heads")
    save_as(at, tmp_path / "small")
    assert f"Saved in `{tmp_path / 'small'}`." in said(at)
    model, mask = open_model(str(tmp_path / "small")), mask_at(tiny(), few)
    np.testing.assert_array_equal(model.gone, mask)
    whole = cache.source(*cache.parts_of(tiny()))
    torch.testing.assert_close(output_of(model.network), output_of(whole.network, mask), atol=1e-6, rtol=0)
    assert "of parameters" not in (tmp_path / "small" / "README.md").read_text()
    assert "| largest difference from the masked model |" in (tmp_path / "small" / "README.md").read_text()
    ran(at.button(key="pruning.open").click().run())
    assert at.session_state[keys.MODEL] == str(tmp_path / "small")
    assert at.query_params["model"] == str(tmp_path / "small")
    assert "6 of 12 heads were removed from this model" in " ".join(one.value for one in at.sidebar.caption)
    assert "Press Run to measure this." in said(at)
    ask(at)
    assert not at.error
    curve = direct(quick(str(tmp_path / "small"), "greedy"), few["similarity", "en"])[0]
    assert (curve.path.there, curve.path.removed.tolist()) == (6, [0, 2, 4, 6])
    for step in range(4):
        along(at, 2 * step)
        shows(at, curve, step, 0.02)
    other = open_page(ATTENTION, model=str(tmp_path / "small"))
    assert "6 of 12 heads were removed" in " ".join(one.value for one in other.sidebar.caption)


def test_a_folder_that_cannot_be_written_is_one_sentence(tiny, tmp_path):
    at = make_real(at_step(tiny()))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for place, reason in (
        ("full", "is not empty. Name another folder."),
        ("file/below", "cannot be written"),
    ):
        save_as(at, tmp_path / place)
        [error] = at.error
        assert reason in error.value.replace("\\", "")
        assert "\n" not in error.value
        assert "pruning.open" not in buttons(at)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    save_as(at, tmp_path / "small")
    assert not at.error
    save_as(at, tmp_path / "small")
    assert "is not empty" in at.error[0].value
    assert "pruning.open" not in buttons(at)


def test_an_empty_name_is_the_folder_that_was_offered(tiny, runs_of_its_own):
    at = make_real(at_step(tiny()))
    save_as(at, "")
    [folder] = (runs_of_its_own / "models").iterdir()
    assert folder.name == "headless-without-6-heads"
    assert open_model(str(folder)).gone.sum() == 6


def test_what_is_said_of_one_model_is_not_said_of_the_next(tiny, tmp_path):
    at = make_real(at_step(tiny(), 3))
    save_as(at, tmp_path / "three")
    make_real(along(at, 9))
    assert "Saved in" not in said(at)
    assert at.text_input(key="pruning.folder").value.endswith("without-9-heads")
    save_as(at, tmp_path / "three")
    assert len(at.error) == 1
    along(at, 3)  # both are there: nothing is built in between
    assert not at.error
    assert "Saved in" not in said(at)
    assert at.text_input(key="pruning.folder").value.endswith("without-3-heads")


def test_downloads_hold_what_they_say(tiny, few, files, packages, tmp_path):
    at = make_real(at_step(tiny()))
    whole, mask = cache.source(*cache.parts_of(tiny())), mask_at(tiny(), few)
    there = files(at)
    base = "headless-without-6-heads"
    assert set(there) == {
        f"{base}.zip", f"{base}-zeros.zip", f"{base}.onnx", "pruning-similarity.csv", "pruning-similarity.html"
    }  # fmt: skip
    small = open_model(str(unpacked(there[f"{base}.zip"], tmp_path / "small")))
    np.testing.assert_array_equal(small.gone, mask)
    masked = output_of(whole.network, mask)
    torch.testing.assert_close(output_of(small.network), masked, atol=1e-6, rtol=0)
    folder = unpacked(there[f"{base}-zeros.zip"], tmp_path / "zeros")
    plainly = transformers.AutoModel.from_pretrained(folder, attn_implementation="headroom").eval()
    torch.testing.assert_close(output_of(plainly), masked, atol=1e-6, rtol=0)
    torch.testing.assert_close(output_of(plainly), output_of(zeroed(whole.network, mask)), atol=0, rtol=0)
    assert len(there[f"{base}.zip"]) < len(there[f"{base}-zeros.zip"])
    assert there[f"{base}.onnx"] == b"6"
    same(offered(at, files), direct(quick(tiny(), "greedy"), few["similarity", "en"]))
    rows = offered(at, files)
    assert len(read_heads(rows["heads"][2])) == 6


def test_without_the_packages_onnx_says_what_to_install(tiny, files, monkeypatch):
    def missing():
        raise OnnxError("An ONNX file needs {missing}. Run: pip install", missing="onnx")

    monkeypatch.setattr(onnx_file, "check_packages", missing)
    at = make_real(at_step(tiny()))
    assert "An ONNX file needs onnx. Run: pip install" in said(at)
    assert not any(name.endswith(".onnx") for name in files(at))


def test_what_is_too_large_for_the_page_is_saved_as_a_folder(tiny, files, monkeypatch):
    monkeypatch.setattr("dashboard.pruning_model.MOST_BYTES", 1000)
    at = make_real(at_step(tiny()))
    assert "The model is too large for a download through the page: save it as a folder." in said(at)
    assert not any(Path(name).suffix in (".zip", ".onnx") for name in files(at))
