"""The router: the pages and the sidebar. Runs before every page, so it stays cheap."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # `streamlit run dashboard/app.py` puts only dashboard/ there
    sys.path.insert(0, str(ROOT))

from dashboard import jobs, sidebar, state  # noqa: E402
from dashboard.text import _  # noqa: E402

VIEWS = Path(__file__).parent / "views"

st.set_page_config(page_title="Headroom", page_icon=str(VIEWS.parent / "icon.png"), layout="wide")
pages = {
    "home": st.Page(VIEWS / "home.py", title=_("Home"), default=True),
    "attention": st.Page(VIEWS / "attention.py", title=_("Attention"), url_path="attention"),
    "heads": st.Page(VIEWS / "heads.py", title=_("Heads"), url_path="heads"),
    "compare": st.Page(VIEWS / "compare.py", title=_("Compare"), url_path="compare"),
    "live": st.Page(VIEWS / "live.py", title=_("Ablate live"), url_path="live"),
    "ablation": st.Page(VIEWS / "ablation.py", title=_("Ablation"), url_path="ablation"),
    "pruning": st.Page(VIEWS / "pruning.py", title=_("Pruning"), url_path="pruning"),
}
page = st.navigation(
    {
        "": [pages["home"]],
        _("Look"): [pages["attention"], pages["heads"], pages["compare"]],
        _("Switch off"): [pages["live"], pages["ablation"], pages["pruning"]],
    }
)
state.start(page.url_path)
sidebar.draw()
with suppress(state.PageEnd):  # what a page started is told also where it ended early
    page.run()
jobs.banner()
