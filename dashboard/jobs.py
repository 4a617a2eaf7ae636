"""Long work in a thread: one job at a time, seen by every session, with progress and cancel.

A job is known by a key of small values. Whoever asks for a key that is known gets the job that is there, so two
tabs that want the same numbers compute them once. No Streamlit call is made in the thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import streamlit as st

from analysis.messages import HeadroomError, Message, message
from dashboard.text import _, say_markdown

State = Literal["waiting", "running", "done", "failed", "cancelled"]
KEPT = 12  # finished jobs whose results stay in memory
AWAITED = "jobs.awaited"  # those that the page of this run asked for in vain
TICK = 0.5  # seconds between two looks at the progress


class Cancelled(Exception):
    """Raised inside the work of a job that was cancelled, by its report of progress."""


Report = Callable[[int], None]
Work = Callable[[Report], object]


@dataclass(eq=False)
class Job:
    """A piece of long work: what it is called, how far it is, and in the end its result or its error."""

    key: Hashable
    title: Message
    total: int
    number: int = 0  # counts up: the order in which jobs run
    state: State = "waiting"
    done: int = 0
    result: object = None
    error: Message | None = None
    started: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def cancel(self) -> None:
        """Ask the work to end at its next report; what waits for its turn never begins."""
        self._stop.set()
        if self.state == "waiting":
            self.state = "cancelled"

    def report(self, done: int) -> None:
        """Note how much is done. Raises Cancelled where someone asked for that."""
        self.done = done
        if self._stop.is_set():
            raise Cancelled

    def seconds_left(self) -> float | None:
        """Return an estimate from the pace so far, or None while there is none."""
        if self.state != "running" or not self.done:
            return None
        return (time.monotonic() - self.started) / self.done * max(self.total - self.done, 0)


class _Registry:
    """The jobs of this server."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._count = 0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headroom-job")

    def start(self, key: Hashable, title: Message, total: int, work: Work) -> Job:
        with self._lock:
            known = self._jobs.get(key)
            if known is not None:
                self._jobs.move_to_end(key)
                return known
            self._count += 1
            job = self._jobs[key] = Job(key, title, total, number=self._count)
            over = [name for name, other in self._jobs.items() if other.is_over]
            for name in over[: max(len(over) - KEPT, 0)]:
                del self._jobs[name]
        self._pool.submit(_run, job, work)
        return job

    def find(self, key: Hashable) -> Job | None:
        with self._lock:
            if key in self._jobs:
                self._jobs.move_to_end(key)  # what is looked at is kept longest
            return self._jobs.get(key)

    def forget(self, key: Hashable) -> None:
        with self._lock:
            job = self._jobs.pop(key, None)
        if job is not None:
            job.cancel()

    def unfinished(self) -> list[Job]:
        with self._lock:
            left = [job for job in self._jobs.values() if not job.is_over]
        return sorted(left, key=lambda job: job.number)


@st.cache_resource(show_spinner=False)
def _registry() -> _Registry:
    return _Registry()


def start(key: Hashable, title: Message, total: int, work: Work) -> Job:
    """Return the job of ``key``, begun now unless it is known already.

    work: gets a function to report progress with, up to ``total``; what that raises must not be caught
    """
    return _registry().start(key, title, total, work)


def result(job: Job) -> object:
    """Return the result of a job, or None while there is none; then the page is drawn anew when it ends."""
    if not job.is_over:
        st.session_state.setdefault(AWAITED, []).append(job)
    return job.result


def find(key: Hashable) -> Job | None:
    """Return the job of ``key``, or None."""
    return _registry().find(key)


def forget(key: Hashable) -> None:
    """Drop the job of ``key``, so that it can be started anew; one that still runs is cancelled."""
    _registry().forget(key)


def banner() -> None:
    """Draw the progress of all unfinished jobs, with Cancel; when one ends the page is drawn anew."""
    jobs = _registry().unfinished()  # first: what ends from here on is found over below
    if any(job.is_over for job in st.session_state.pop(AWAITED, [])):
        st.rerun()  # it ended while the page that still lacks it was drawn
    if jobs:
        with st.container(key="jobs"):
            st.fragment(_progress, run_every=TICK)(jobs)


def _progress(jobs: list[Job]) -> None:
    if any(job.is_over for job in jobs):
        st.rerun()
    first = jobs[0]
    st.progress(min(first.done / max(first.total, 1), 1.0), text=_progress_text(first))
    st.button(_("Cancel"), key="job.cancel", on_click=first.cancel)
    for i, job in enumerate(jobs[1:4], start=1):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(_("then: {title}").format(title=say_markdown(job.title)))
            st.button(_("Leave out"), key=f"job.cancel.{i}", on_click=job.cancel, type="tertiary")


def _progress_text(job: Job) -> str:
    title = say_markdown(job.title)
    if job.state == "waiting":
        return _("{title}: waits for its turn").format(title=title)
    said = _("{title}: {done:,} of {total:,}").format(title=title, done=job.done, total=job.total)
    left = job.seconds_left()
    if left is None:
        return said
    return said + " · " + _("about {seconds:.0f} s left").format(seconds=left)


def _run(job: Job, work: Work) -> None:
    if job.is_over:  # cancelled before its turn
        return
    try:
        job.state, job.started = "running", time.monotonic()
        job.report(0)
        job.result = work(job.report)
        job.state = "done"
    except Cancelled:
        job.state = "cancelled"
    except HeadroomError as error:
        job.error, job.state = error.message, "failed"
    except Exception as error:  # the thread must not die silently: whoever waits is told
        logging.getLogger(__name__).exception("the job %s failed", job.key)
        job.error = message(
            "This did not work ({kind}). The server's log has the details.", kind=type(error).__name__
        )
        job.state = "failed"
