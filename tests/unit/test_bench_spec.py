# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of speculation and of servers, without an engine."""

import io
import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from vllm_kunlun.bench.serve import command as serve_command
from vllm_kunlun.bench.serve import run as serve_run
from vllm_kunlun.bench.serve.load import load
from vllm_kunlun.bench.serve.server import Server, answers, free_port
from vllm_kunlun.bench.spec import prompts, report
from vllm_kunlun.bench.spec.process import EngineProcess, last_error
from vllm_kunlun.bench.spec.run import Plan, Report, engines, rows_of, run, take_turns
from vllm_kunlun.bench.spec.worker import Engine, Found, lengths
from vllm_kunlun.bench.ways import RUNNERS, Way, checkpoint_config, speculating
from vllm_kunlun.cli import app
from vllm_kunlun.demo.weights import DRAFT

WAYS = speculating(Path("draft"), 7, (2, 4))


def found(seconds: float, outputs: list[list[int]], **more: Any) -> Found:
    """Return what a run of two requests gave."""
    return Found(seconds, sum(map(len, outputs)), 5.0, outputs=outputs, **more)


FOUND = {
    "V1": [found(2.0, [[1, 2], [3, 4]]), found(1.0, [[1, 2], [3, 4]])],
    "V1 + ngram": [
        found(1.0, [[1, 2], [3, 4]], drafts=2, drafted=6, accepted=1, accepted_at=[1]),
        found(1.0, [[1, 2], [3, 4]], drafts=2, drafted=6, accepted=2, accepted_at=[2]),
    ],
    "V2": [found(0.5, [[1, 2], [3, 5]]), found(0.5, [[1, 2], [3, 5]])],
}


def test_ratios_are_of_each_round() -> None:
    """The median of 4 and 2, not the ratio of medians."""
    rows = {row.way: row for row in rows_of(FOUND, "open chat", 2)}
    assert rows["V2"].over_v1 == 3
    assert rows["V2"].over_ngram == 2
    assert rows["V2"].tokens_per_second == 8
    assert rows["V2"].same_as_v1 == 0.5
    assert rows["V2"].acceptance is None
    ngram = rows["V1 + ngram"]
    assert ngram.drafted_per_step == 3
    assert ngram.acceptance == 0.25
    assert ngram.length == 1.75
    assert ngram.by_position == [0.75]


def test_prompts_differ() -> None:
    """Each kind has as many different prompts as are asked for."""
    for text in prompts.TEXTS.values():
        assert len({text(i) for i in range(128)}) == 128
    drawn = prompts.random_tokens(3, 100)
    assert drawn == prompts.random_tokens(3, 100)
    assert drawn != prompts.random_tokens(4, 100)
    assert all(0 <= token < 100 for token in drawn)
    assert set(prompts.KINDS) == {*prompts.TEXTS, prompts.RANDOM}


def test_environment_of_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller has set for the switches is not taken over."""
    monkeypatch.setenv("KUNLUN_LAZY_KV", "1")
    v1, off, on = (way.environment(compiled=True) for way in RUNNERS)
    assert v1["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert off["VLLM_USE_V2_MODEL_RUNNER"] == on["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert off["KUNLUN_LAZY_KV"] == off["KUNLUN_HOSTVEC"] == "0"
    assert not any(name.startswith("KUNLUN_") for name in (*v1, *on))
    assert "TORCHDYNAMO_DISABLE" not in on or "TORCHDYNAMO_DISABLE" in os.environ
    assert RUNNERS[0].environment(compiled=False)["TORCHDYNAMO_DISABLE"] == "1"


def test_ways() -> None:
    """Each runner with each drafter that it has, V2's switches off and on."""
    methods = [w.speculative["method"] if w.speculative else None for w in WAYS]
    assert methods == [None, "ngram", None, None, *["dspark"] * 4]
    assert [w.switches for w in WAYS if w.use_v2] == [False, True] * 3
    assert ["model" in (w.speculative or {}) for w in WAYS] == [False] * 6 + [True] * 2


def test_no_more_drafts_than_a_checkpoint_was_made_for() -> None:
    """And as many as asked for where it does not say."""
    assert checkpoint_config(DRAFT, 3)["num_speculative_tokens"] == 3
    assert checkpoint_config(DRAFT, 7)["num_speculative_tokens"] == 5
    assert checkpoint_config(Path("nowhere"), 7)["num_speculative_tokens"] == 7


WORKER = """
import json, os, sys
for line in sys.stdin:
    order = json.loads(line)
    if "speculative_config" in order:
        if order["speculative_config"]:
            print("Traceback ...\\nValueError: no such draft.", file=sys.stderr)
            sys.exit(1)
        print('"ready"', flush=True)
        continue
    if order["kind"] == "broken":
        print("RuntimeError: out of blocks.", file=sys.stderr)
        sys.exit(1)
    n = order["requests"]
    print(json.dumps({"seconds": n * order.get("rate", 1) or 1.0, "tokens": 2 * n,
        "inter_token": 1.0, "outputs": [[1, 2]] * n}), flush=True)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a worker without an engine in the place of the real one."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}"\n')
    python.chmod(0o755)
    monkeypatch.setattr("vllm_kunlun.bench.spec.process.sys.executable", str(python))


def plan_of(*ways: Way, **more: Any) -> Plan:
    """Return a small plan."""
    options: dict[str, Any] = {
        "ways": ways,
        "kinds": ["open chat"],
        "concurrency": [1, 2],
        "requests": 3,
        "max_tokens": 2,
        "rounds": 2,
        "options": {"model": "m"},
    }
    return Plan(**(options | more))


@pytest.mark.usefixtures("worker")
def test_run() -> None:
    """Ways that do not start are named, the others are measured in turn."""
    said: list[str] = []
    plan = plan_of(*WAYS[:4], synthetic=[Way("V2, forced", True)], rates=[0.0, 1.0])
    done = run(plan, said.append)
    assert done.failed == {"V1 + ngram": "V1 + ngram does not run: no such draft."}
    assert [(row.way, row.at_once) for row in done.rows] == [
        (way, at_once) for at_once in (1, 2) for way in ("V1", "V2 off", "V2")
    ]
    assert [row.tokens_per_second for row in done.rows] == [2.0] * 6
    assert [row.rate for row in done.synthetic] == [0.0, 0.0, 1.0, 1.0]
    assert said[0] == "Starting V1"


class Clients:
    """In the place of vLLM's `LLM`: requests of as many steps as their prompts say."""

    def __init__(self) -> None:
        self.begun = 0
        self.left: dict[int, int] = {}
        self.most = 0
        self.steps = 0
        self.tokens = 0
        self.sampling: list[Any] = []
        self.llm_engine = self

    def enqueue(self, prompts: list[int], sampling: list[Any], use_tqdm: bool) -> None:
        """Take prompts."""
        assert len(prompts) == len(sampling)
        self.sampling += sampling
        self.left |= dict(enumerate(prompts, self.begun))
        self.begun += len(prompts)
        self.most = max(self.most, len(self.left))

    def step(self) -> list[Any]:
        """Return what has ended."""
        self.steps += 1
        self.tokens += len(self.left)
        self.left = {i: n - 1 for i, n in self.left.items()}
        done = [i for i, n in self.left.items() if n == 0]
        for i in done:
            del self.left[i]
        return [SimpleNamespace(request_id=str(i)) for i in done]

    def get_metrics(self) -> list[Any]:
        """Return what is counted, of any engine's counters."""
        name = "vllm:generation_tokens"
        return [SimpleNamespace(name=name, value=self.tokens)]


def test_the_next_request_begins_as_one_ends() -> None:
    """Never more than so many, and no fewer while there are any."""
    engine: Any = object.__new__(Engine)
    engine.llm = Clients()
    outputs, _, made = engine.answers([5, 1, 2, 3, 4, 6], [None] * 6, 2)
    assert [output.request_id for output in outputs] == list("012345")
    assert engine.llm.most == 2
    # 5 and 4 beside 1, 2, 3 and 6.
    assert engine.llm.steps == 12
    # All places have been taken twice after three steps of two, and 6 begins after
    # six of them; what comes before and then does not count.
    assert made == 6


def test_the_first_requests_end_spread_out() -> None:
    """Where they are not counted; else all are as long as asked for."""
    assert lengths(12, 4, 8) == [2, 4, 6, 8, *[8] * 8]
    assert lengths(9, 3, 2) == [1, 2, 2, *[2] * 6]
    assert lengths(3, 1, 5) == [5, 5, 5]
    assert lengths(11, 4, 8) == [8] * 11


def test_each_request_has_its_own_parameters() -> None:
    """Also those that begin later."""
    engine: Any = object.__new__(Engine)
    engine.llm = Clients()
    engine.answers([2, 1, 1, 1, 1, 1], list("abcdef"), 2)
    assert engine.llm.sampling == list("abcdef")


def test_two_requests_for_each_place_count_from_the_first() -> None:
    """There is no time in which all have been taken twice and another one begins."""
    engine: Any = object.__new__(Engine)
    engine.llm = Clients()
    _, _, made = engine.answers([2, 2, 3, 3], [None] * 4, 2)
    assert made == 4


def test_all_counts_where_no_request_waits() -> None:
    """A batch that is never filled up again is measured to its end."""
    engine: Any = object.__new__(Engine)
    engine.llm = Clients()
    _, seconds, made = engine.answers([3, 1], [None] * 2, 2)
    assert made == 4
    assert seconds > 0


@pytest.mark.usefixtures("worker")
def test_nothing_runs() -> None:
    """Then there is nothing to report but the reason."""
    with pytest.raises(RuntimeError, match=r"V1 \+ ngram does not run: no such draft"):
        run(plan_of(WAYS[1]), lambda text: None)


@pytest.mark.usefixtures("worker")
def test_an_engine_breaks(tmp_path: Path) -> None:
    """The reason is in one sentence, and no process is left."""
    kept: list[EngineProcess] = []
    order = {"kind": "broken", "requests": 1, "max_tokens": 2}
    ways = [WAYS[0], WAYS[3]]
    with engines(ways, plan_of(), Report(), lambda text: None) as running:
        kept += running
        with pytest.raises(RuntimeError, match=r"V1 does not run: out of blocks\."):
            take_turns(running, order, 1)
    assert len(kept) == 2
    assert all(engine.process.poll() is not None for engine in kept)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("a\nb.c.EngineDeadError: it died.\nnoise", "it died."),
        ("(Core pid=1) ValueError: bad model.", "bad model."),
        ("just a line\n\n", "just a line"),
        ("", "it ended without a word."),
    ],
)
def test_last_error(log: str, message: str) -> None:
    """The last exception of a log, else its last line."""
    assert last_error(log) == message


def test_reports_of_speculation(tmp_path: Path) -> None:
    """All figures, on a terminal, in Markdown, as JSON and as a plot."""
    done = Report(rows=rows_of(FOUND, "open chat", 2), failed={"V3": "it is not."})
    done.synthetic = rows_of({"V2, forced": FOUND["V2"]}, "forced acceptance", 2)
    done.synthetic[0].rate = 0.5
    console = Console(width=80, record=True, file=io.StringIO())
    for table in report.tables(done):
        console.print(table, soft_wrap=True)
    said = console.export_text()
    assert "forced acceptance" in said
    # Whole, however narrow the terminal is.
    assert all(heading in said for heading in report.SPEED)
    plan = plan_of(*WAYS)
    text = report.as_markdown(done, plan)
    assert "V3 is missing: it is not." in text
    assert "| V2 | 2 | 8 | 3 | 2 | 5 | - | - | - | 50% |" in text
    assert "| V1 + ngram | 2 | 75% |" in text
    assert "| V2, forced | 2 | 50% | 8 | 5 | - |" in text
    everything = json.loads(report.as_json(done, plan))
    assert everything["failed"] == {"V3": "it is not."}
    assert everything["rows"][2]["over_v1"] == 3
    report.plot(done, tmp_path / "a.svg")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a.svg"]


def bench(*options: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it says, in one line."""
    result = CliRunner().invoke(app, ["bench", *options])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["spec", "--concurrency", "0"], "--concurrency must be whole numbers from 1"),
        (["spec", "--lookup", "4"], "--lookup must be the shortest and the longest"),
        (["spec", "--lookup", "4,2"], "such as 2,4, but is '4,2'."),
        (["spec", "--drafts", "0"], "--drafts must be 1 to 15, but is 0."),
        (["spec", "--tokens", "1"], "--tokens must be 2 to 512, but is 1."),
        (["spec", "--rounds", "0"], "--rounds must be 1 to 1000, but is 0."),
        (["spec", "--acceptance", "0,2"], "--acceptance must be numbers from 0 to 1"),
        (["spec", "--acceptance", "x"], "but is 'x'."),
        (["spec", "--way", "V3"], "--way must be one of V1, V1 + ngram, V2 off,"),
        (["spec", "--text", "poem"], "--text must be one of code edit, summarise"),
        (["spec", "--model", "/nowhere"], "/nowhere is no model: it has no config"),
        (["spec", "--json", "/"], "/ is a folder: give the name of a file."),
        (["spec", "--plot", "a.txt"], "--plot must end in .pdf, .png, .svg"),
        (["serve", "--concurrency", "x"], "--concurrency must be whole numbers from 1"),
        (["serve", "--rounds", "0"], "--rounds must be 1 or more, but is 0."),
        (["serve", "--requests", "0"], "--requests must be 1 or more, but is 0."),
        (["serve", "--output-len", "1000"], "must be 1024 together at most, but are"),
        (["serve", "--model", "/nowhere"], "/nowhere is no model: it has no config"),
        (["serve", "--json", "/"], "/ is a folder: give the name of a file."),
    ],
)
def test_bad_option(options: list[str], message: str) -> None:
    """One sentence, before anything is started."""
    code, said = bench(*options)
    assert code == 1
    assert message in said


def test_brackets_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What to install is not taken for markup."""
    monkeypatch.setattr("vllm_kunlun.bench.plots.find_spec", lambda name: None)
    code, said = bench("spec", "--plot", str(tmp_path / "a.svg"))
    assert code == 1
    assert "run pip install 'vllm-kunlun[bench]'" in said


VLLM = """
import http.server, sys
a = sys.argv[1:]
if a[1] == "broken":
    print("ValueError: no such model.")
    sys.exit(1)
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
address = (a[a.index("--host") + 1], int(a[a.index("--port") + 1]))
http.server.HTTPServer(address, Healthy).serve_forever()
"""


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a server without an engine, and a client for it, in the place of vLLM's."""

    def client(arguments: list[str]) -> dict[str, Any]:
        assert answers(arguments[arguments.index("--base-url") + 1])
        number = int(arguments[arguments.index("--num-prompts") + 1])
        figures = dict.fromkeys(serve_run.FIGURES, float(number))
        return figures | {"failed": int(number > 9)}

    monkeypatch.setattr("vllm_kunlun.bench.serve.server._VLLM", VLLM)
    monkeypatch.setattr("vllm_kunlun.bench.serve.load.client", client)


def serve_plan(model: str, **more: Any) -> serve_run.Plan:
    """Return a small plan."""
    options: dict[str, Any] = {
        "ways": RUNNERS,
        "serve": [model],
        "load": [],
        "concurrency": [1, 2],
        "requests": 2,
        "rounds": 2,
        "compiled": False,
    }
    return serve_run.Plan(**(options | more))


@pytest.mark.usefixtures("vllm")
def test_servers_take_turns() -> None:
    """Each is loaded in each round, and none is left."""
    said: list[str] = []
    plan = serve_plan("model")
    rows = serve_run.run(plan, said.append)
    assert [(row.way, row.concurrency) for row in rows] == [
        (way.label, c) for c in (1, 2) for way in RUNNERS
    ]
    assert [row.figures["output_throughput"] for row in rows] == [2.0] * 3 + [4.0] * 3
    assert all(row.over_v1 == 1 for row in rows)
    turns = [text.rpartition(": ")[2] for text in said[3:9]]
    assert turns == ["V1", "V2 off", "V2", "V2 off", "V2", "V1"]
    text = serve_command.as_markdown(rows, plan)
    assert "| V2 | 2 | 1 | 4 | 4 | 4 | 4 | 4 | 4 |" in text
    assert json.loads(serve_command.as_json(rows, plan))["rows"][0]["over_v1"] == 1


@pytest.mark.usefixtures("vllm")
def test_a_server_does_not_start(tmp_path: Path) -> None:
    """The reason is in one sentence."""
    with pytest.raises(RuntimeError, match=r"V1 does not serve: no such model\."):
        serve_run.run(serve_plan("broken"), lambda text: None)


@pytest.mark.usefixtures("vllm")
def test_requests_fail(tmp_path: Path) -> None:
    """Figures of failed requests are no figures; the server is taken down."""
    server = Server(RUNNERS[0], ["model"], tmp_path, compiled=False)
    try:
        server.wait()
        with pytest.raises(RuntimeError, match="requests failed on V1"):
            load(server, ["--num-prompts", "10"])
    finally:
        server.stop()
    assert server.process.poll() is not None
    assert not answers(server.url)


@pytest.mark.usefixtures("vllm")
def test_a_server_takes_too_long(tmp_path: Path) -> None:
    """It is not waited for forever."""
    server = Server(RUNNERS[0], ["model"], tmp_path, compiled=False)
    try:
        server.port = free_port()
        with pytest.raises(RuntimeError, match="V1 was not ready after 0 s"):
            server.wait(0)
    finally:
        server.stop()


def test_a_free_port() -> None:
    """It can be listened on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))
