"""Long work: begun once for all who ask, told while it runs, ended when somebody says so, and then forgotten."""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from typing import ClassVar

import pytest
from streamlit.testing.v1 import AppTest

from analysis.messages import HeadroomError, message
from dashboard import jobs
from tests.dashboard.test_pages import ran, said

WAIT = 30  # a bound for a hung thread, in seconds; no test measures time
TITLE = message("Counting {what}", what="sheep")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A registry of its own for each test, whose thread ends with it."""
    own = jobs._Registry()
    monkeypatch.setattr(jobs, "_registry", lambda: own)
    yield own
    for gate in Gate.all:
        gate.opened.set()
    Gate.all.clear()
    own._pool.shutdown(wait=True)


class Gate:
    """Work that says when it has begun, reports, waits to be let through, reports and returns its result."""

    all: ClassVar[list[Gate]] = []  # of this test

    def __init__(self, result: object = "result", *, done: int = 3, error: Exception | None = None) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()
        self.runs, self.passed = 0, 0
        self.result, self.done, self.error = result, done, error
        self.all.append(self)

    def __call__(self, report: jobs.Report) -> object:
        self.runs += 1
        report(self.done)
        self.begun.set()
        assert self.opened.wait(WAIT)
        if self.error is not None:
            raise self.error
        report(self.done + 1)
        self.passed += 1
        return self.result

    def has_begun(self) -> None:
        assert self.begun.wait(WAIT)


def opened(result: object = "result", **options: object) -> Gate:
    """Return work that waits for nobody."""
    gate = Gate(result, **options)
    gate.opened.set()
    return gate


def finish(registry: jobs._Registry) -> None:
    """Wait until all that was begun has ended: the thread takes one thing after another."""
    registry._pool.submit(bool).result(WAIT)


# One job


def test_a_job_runs_and_gives_its_result(registry):
    gate = opened({"a": 1}, done=3)
    job = jobs.start("sheep", TITLE, 4, gate)
    assert (job.key, job.title, job.total) == ("sheep", TITLE, 4)
    finish(registry)
    assert (job.state, job.is_over, job.error) == ("done", True, None)
    assert jobs.result(job) == {"a": 1}
    assert job.done == 4
    assert jobs.find("sheep") is job
    assert jobs.find("goats") is None
    assert registry.unfinished() == []


def test_work_leaves_the_thread_that_asked(registry):
    where = []
    jobs.start("sheep", TITLE, 1, lambda report: where.append(threading.current_thread().name))
    finish(registry)
    assert where[0].startswith("headroom-job")
    assert where[0] != threading.current_thread().name


def test_two_who_ask_for_one_key_share_one_run(registry):
    gate, other = Gate(), Gate()
    first = jobs.start(("sheep", 1), TITLE, 4, gate)
    gate.has_begun()
    assert jobs.start(("sheep", 1), TITLE, 4, other) is first
    gate.opened.set()
    finish(registry)
    assert jobs.start(("sheep", 1), TITLE, 4, other) is first
    assert jobs.start(("sheep", 2), TITLE, 4, opened()) is not first
    finish(registry)
    assert (gate.runs, other.runs) == (1, 0)


def test_many_threads_that_ask_at_once_share_one_run(registry):
    gate, found = Gate(), []
    together = threading.Barrier(8)

    def ask() -> None:
        together.wait(WAIT)
        found.append(jobs.start("sheep", TITLE, 4, gate))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    gate.opened.set()
    finish(registry)
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert gate.runs == 1


def test_jobs_run_one_after_another_in_the_order_of_asking(registry):
    gate, log = Gate(), []
    jobs.start("first", TITLE, 4, gate)
    for name in ("second", "third"):
        jobs.start(name, TITLE, 1, lambda report, name=name: log.append((name, gate.passed)))
    gate.has_begun()
    assert [job.state for job in registry.unfinished()] == ["running", "waiting", "waiting"]
    assert [job.key for job in registry.unfinished()] == ["first", "second", "third"]
    gate.opened.set()
    finish(registry)
    assert log == [("second", 1), ("third", 1)]


# How far it is


def test_progress_and_the_time_left(registry, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(jobs, "time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    gate = Gate(done=10)
    job = jobs.Job("sheep", TITLE, 40)
    assert (job.state, job.seconds_left()) == ("waiting", None)
    job = jobs.start("sheep", TITLE, 40, gate)
    gate.has_begun()
    assert (job.state, job.done) == ("running", 10)
    clock[0] = 105.0  # 10 of 40 took 5 seconds
    assert job.seconds_left() == pytest.approx(15)
    job.done = 50  # more than was promised
    assert job.seconds_left() == 0
    job.done = 0
    assert job.seconds_left() is None
    gate.opened.set()
    finish(registry)
    assert job.seconds_left() is None


def test_progress_in_words():
    job = jobs.Job("sheep", TITLE, 4000)
    assert jobs._progress_text(job) == "Counting sheep: waits for its turn"
    job.state = "running"
    assert jobs._progress_text(job) == "Counting sheep: 0 of 4,000"
    job.done, job.started = 1000, time.monotonic() - 20
    said_of = jobs._progress_text(job)
    assert said_of.startswith("Counting sheep: 1,000 of 4,000 · about 6")
    assert said_of.endswith(" s left")


# Cancel


def test_a_running_job_is_cancelled_at_its_next_report(registry):
    gate = Gate()
    job = jobs.start("sheep", TITLE, 4, gate)
    gate.has_begun()
    job.cancel()
    assert job.state == "running"  # until the work comes round to it
    gate.opened.set()
    finish(registry)
    assert (job.state, job.is_over, job.error, job.result) == ("cancelled", True, None, None)
    assert (gate.runs, gate.passed) == (1, 0)
    assert jobs.result(job) is None
    assert jobs.start("sheep", TITLE, 4, gate) is job  # it stays cancelled, nobody starts it unasked
    finish(registry)
    assert gate.runs == 1


def test_a_job_cancelled_before_its_turn_never_runs(registry):
    gate, never = Gate(), opened()
    jobs.start("first", TITLE, 4, gate)
    job = jobs.start("second", TITLE, 4, never)
    gate.has_begun()
    job.cancel()
    assert (job.state, job.is_over) == ("cancelled", True)  # at once: nothing has begun
    assert [left.key for left in registry.unfinished()] == ["first"]
    gate.opened.set()
    finish(registry)
    assert (job.state, job.result, never.runs) == ("cancelled", None, 0)
    assert jobs.find("first").state == "done"


def test_what_was_forgotten_starts_anew(registry):
    gate = Gate()
    job = jobs.start("sheep", TITLE, 4, gate)
    gate.has_begun()
    jobs.forget("sheep")  # this cancels it too
    assert jobs.find("sheep") is None
    assert registry.unfinished() == []
    anew = jobs.start("sheep", TITLE, 4, again := opened("anew"))
    assert anew is not job
    gate.opened.set()
    finish(registry)
    assert (job.state, job.result) == ("cancelled", None)
    assert (anew.state, anew.result, again.runs) == ("done", "anew", 1)
    assert jobs.find("sheep") is anew
    jobs.forget("no such key")


# What fails


def test_an_error_with_a_sentence_is_that_sentence(registry):
    error = HeadroomError("{given} sheep are too many: count up to {most}.", given=9, most=4)
    job = jobs.start("sheep", TITLE, 4, opened(error=error))
    after = jobs.start("goats", TITLE, 4, opened("goats"))
    finish(registry)
    assert (job.state, job.is_over, job.result) == ("failed", True, None)
    assert str(job.error) == "9 sheep are too many: count up to 4."
    assert job.error.template.startswith("{given} sheep")  # so that it can be translated
    assert (after.state, after.result) == ("done", "goats")


@pytest.mark.parametrize("error", [ValueError("secret /path/of/this/machine"), MemoryError(), KeyError("x")])
def test_any_other_error_is_a_plain_sentence_and_the_next_job_runs(registry, error):
    job = jobs.start("sheep", TITLE, 4, opened(error=error))
    after = jobs.start("goats", TITLE, 4, opened("goats"))
    finish(registry)
    assert job.state == "failed"
    kind = type(error).__name__
    assert str(job.error) == f"This did not work ({kind}). The server's log has the details."
    assert after.result == "goats"
    jobs.forget("sheep")
    assert jobs.start("sheep", TITLE, 4, opened("well")) is not job
    finish(registry)
    assert jobs.find("sheep").result == "well"


# What is kept


def test_only_the_newest_results_are_kept(registry):
    for number in range(jobs.KEPT + 3):
        jobs.start(number, TITLE, 1, opened(number))
        finish(registry)
    kept = [number for number in range(jobs.KEPT + 3) if jobs.find(number) is not None]
    assert kept[-jobs.KEPT :] == list(range(3, jobs.KEPT + 3))
    assert len(kept) <= jobs.KEPT + 1
    again = opened("anew")
    assert jobs.start(0, TITLE, 1, again).result != 0
    finish(registry)
    assert jobs.find(0).result == "anew"


def test_jobs_that_are_not_over_are_never_dropped(registry):
    gate = Gate()
    running = jobs.start("running", TITLE, 4, gate)
    gate.has_begun()
    waiting = [jobs.start(number, TITLE, 1, opened(number)) for number in range(2 * jobs.KEPT)]
    assert registry.unfinished() == [running, *waiting]
    gate.opened.set()
    finish(registry)
    assert [job.result for job in waiting] == list(range(2 * jobs.KEPT))
    jobs.start("next", TITLE, 1, opened())
    finish(registry)
    assert jobs.find("running") is None
    assert jobs.find(0) is None


def test_a_result_that_is_looked_at_outlives_those_that_are_not(registry):
    jobs.start("looked at", TITLE, 1, opened("here"))
    for number in range(2 * jobs.KEPT):
        finish(registry)
        assert jobs.find("looked at").result == "here"
        jobs.start(number, TITLE, 1, opened(number))


class Heavy:
    """What stands for a model in the work of a job."""


@pytest.mark.parametrize("end", ["done", "failed", "crashed", "cancelled", "unbegun"])
def test_what_the_work_holds_is_let_go_at_its_end(registry, end, monkeypatch):
    """Else a model would stay in memory for as long as its result."""
    log = logging.getLogger("dashboard.jobs")
    monkeypatch.setattr(log, "disabled", True)  # pytest keeps what is logged, with its traceback
    errors = {"failed": HeadroomError("No."), "crashed": ValueError("no")}
    gate = Gate(error=errors.pop(end, None))
    del errors

    def work_of(heavy: Heavy, gate: Gate):
        return lambda report: (heavy, gate(report))[1]

    heavy = Heavy()
    gone = weakref.ref(heavy)
    blocker = Gate()
    if end == "unbegun":
        jobs.start("blocker", TITLE, 4, blocker)
        blocker.has_begun()
    job = jobs.start("sheep", TITLE, 4, work_of(heavy, gate))
    del heavy
    if end != "unbegun":
        gate.has_begun()
    assert gone() is not None
    if end in ("cancelled", "unbegun"):
        job.cancel()
    gate.opened.set()
    blocker.opened.set()
    finish(registry)
    if gate.error is not None:  # which this test holds
        gate.error.__traceback__ = None
    gc.collect()
    assert job.state == {"crashed": "failed", "unbegun": "cancelled"}.get(end, end)
    assert jobs.find("sheep") is job
    assert gone() is None


# On a page


def page() -> None:
    """A page as those of the dashboard are: it asks, draws, and the banner follows."""
    import streamlit as st

    from analysis.messages import message
    from dashboard import jobs

    hooks = st.session_state["hooks"]
    st.session_state["drawn"] = st.session_state.get("drawn", 0) + 1
    job = jobs.find("sheep") or jobs.start("sheep", message("Counting sheep"), 4, hooks["work"])
    found = jobs.result(job)
    hooks["drawing"]()
    st.markdown(f"found {found} {job.state}" if job.is_over and found else "not there yet")
    jobs.banner()


def open_page(work: object, drawing: object = bool) -> AppTest:
    """Open the page in a session of its own; ``drawing`` happens between its question and its answer."""
    at = AppTest.from_function(page, default_timeout=WAIT)
    at.session_state["hooks"] = {"work": work, "drawing": drawing}
    return at


def progress_of(at: AppTest) -> list[tuple[int, str]]:
    """Return how far each bar on the page is, in hundredths, and what it says."""
    return [(bar.proto.value, bar.proto.text) for bar in at.get("progress")]


def test_a_page_shows_what_there_is_and_then_the_result(registry):
    gate = Gate(done=1)
    at = open_page(gate, lambda: gate.begun.wait(WAIT))
    ran(at.run())
    assert at.markdown[0].value == "not there yet"
    ((share, words),) = progress_of(at)
    assert share == 25
    assert words.startswith("Counting sheep: 1 of 4 · about ")
    gate.opened.set()
    finish(registry)
    ran(at.run())
    assert at.markdown[0].value == "found result done"
    assert progress_of(at) == []
    assert not [button for button in at.button if button.key == "job.cancel"]
    assert at.session_state["drawn"] == 2


def test_a_job_that_ends_while_the_page_is_drawn_is_not_missed(registry):
    """Between the question and the banner there is nothing that would call the page again."""
    gate = Gate()

    def drawing() -> None:
        gate.opened.set()
        finish(registry)

    at = open_page(gate, drawing)
    ran(at.run())
    assert at.markdown[0].value == "found result done"
    assert at.session_state["drawn"] == 2
    assert jobs.AWAITED not in at.session_state
    ran(at.run())
    assert at.session_state["drawn"] == 3  # and once only


def test_a_job_that_ends_before_the_bar_is_drawn_is_not_missed(registry, monkeypatch):
    gate = Gate()
    real = jobs._progress

    def progress(drawn: list[jobs.Job]) -> None:
        gate.opened.set()
        finish(registry)
        real(drawn)

    monkeypatch.setattr(jobs, "_progress", progress)
    at = ran(open_page(gate).run())
    assert at.markdown[0].value == "found result done"
    assert at.session_state["drawn"] == 2


def test_a_job_that_ends_while_the_banner_looks_is_not_missed(registry, monkeypatch):
    gate = Gate()
    real = registry.unfinished

    def unfinished() -> list[jobs.Job]:
        gate.opened.set()
        finish(registry)
        return real()

    monkeypatch.setattr(registry, "unfinished", unfinished)
    at = ran(open_page(gate).run())
    assert at.markdown[0].value == "found result done"


@pytest.mark.parametrize("error", [HeadroomError("No sheep."), ValueError()])
def test_a_job_that_fails_while_the_page_is_drawn_calls_it_once(registry, error):
    gate = Gate(error=error)

    def drawing() -> None:
        gate.opened.set()
        finish(registry)

    at = ran(open_page(gate, drawing).run())
    assert (at.session_state["drawn"], gate.runs) == (2, 1)
    assert progress_of(at) == []


def test_cancel_on_the_page_ends_the_job(registry):
    gate = Gate()
    at = open_page(gate, lambda: gate.begun.wait(WAIT))
    ran(at.run())
    ran(at.button(key="job.cancel").click().run())
    gate.opened.set()
    finish(registry)
    ran(at.run())
    assert jobs.find("sheep").state == "cancelled"
    assert progress_of(at) == []
    assert gate.passed == 0


def test_two_sessions_see_one_job_and_either_may_cancel_it(registry):
    gate = Gate()
    first = ran(open_page(gate, lambda: gate.begun.wait(WAIT)).run())
    second = ran(open_page(gate).run())
    assert len(progress_of(first)) == len(progress_of(second)) == 1
    gate.opened.set()
    finish(registry)
    for at in (first, second):
        assert ran(at.run()).markdown[0].value == "found result done"
    assert gate.runs == 1


def test_what_waits_is_named_after_what_runs(registry):
    gate = Gate(done=2)
    jobs.start("first", message("Counting {what}", what="*all* goats"), 4, gate)
    gate.has_begun()
    jobs.start("second", message("Counting {what}", what="cows"), 4, opened())
    at = ran(open_page(opened()).run())
    ((share, words),) = progress_of(at)
    assert share == 50
    assert words.startswith("Counting \\*all\\* goats: 2 of 4")
    assert [line for line in said(at).splitlines() if line.startswith("then")] == [
        "then: Counting cows",
        "then: Counting sheep",
    ]
    ran(at.button(key="job.cancel.1").click().run())
    assert jobs.find("second").state == "cancelled"
    assert "then: Counting cows" not in said(ran(at.run()))
    gate.opened.set()
    finish(registry)
    assert (jobs.find("first").state, jobs.find("sheep").state) == ("done", "done")


def test_the_bar_and_cancel_belong_to_the_job_that_runs(registry):
    """Also where somebody asked again for it, or for one that waits."""
    gate = Gate(done=2)
    running = jobs.start("running", message("Counting goats"), 4, gate)
    jobs.start("sheep", message("Counting sheep"), 4, opened())
    gate.has_begun()
    assert jobs.start("running", TITLE, 4, gate) is running
    at = ran(open_page(opened()).run())
    assert progress_of(at)[0][1].startswith("Counting goats: 2 of 4")
    ran(at.button(key="job.cancel").click().run())
    gate.opened.set()
    finish(registry)
    assert running.state == "cancelled"
    assert jobs.find("sheep").state == "done"
