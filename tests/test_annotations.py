"""The annotated shapes of what runs in every layer, checked at every call in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import ROOT

PASSES = ["tests/test_ablation.py", "-k", "equals_one_pass and headless and uniform"]


def test_the_innermost_functions_get_what_their_annotations_say():
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *PASSES]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=os.environ | {"HEADROOM_SHAPES": "all"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(".") >= 7


def test_a_wrong_shape_would_be_found():
    code = (
        "import tests.conftest, torch\n"
        "from analysis.toy import embed, make_toy\n"
        "make_toy().module.trace(torch.zeros(3))\n"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "TypeCheckError" in done.stderr
