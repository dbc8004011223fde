"""Laws of report.html: well-formed, self-contained, and correct for every kind of run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.text import Text

import geomx
from geomx.pages import gantt, wan
from geomx.pages.bars import Chart, Panel
from geomx.pages.charts import Series, line_chart, ticks
from geomx.pages.markup import Markup, tag
from geomx.pages.page import render
from geomx.pages.utilisation import UTILISATION, Uses
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.results.trace import Span, Timeline
from geomx.terminal import units
from tests.report_fixture import graph, header, record, run

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Checks that elements are closed in order; collects text and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for key, value in attrs if key in {"src", "href", "action"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.text += data


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.links == []
    assert not re.search(r"https?://|@import|url\(", page)
    assert "NaN" not in page and "nan%" not in page
    return checker


def page_of(directory: Path) -> str:
    return (directory / "report.html").read_text(encoding="utf-8")


def test_a_complete_run_has_every_section(tmp_path: Path) -> None:
    run(tmp_path)
    page = check(page_of(tmp_path))
    for expected in (
        "hfa + dgt + p3", "python -m geomx +sync=hfa '+accel=[dgt,p3]'", "Loss over time",
        "Accuracy over time", "Where an iteration goes", "The first 3 iterations",
        "The last iteration", "The WAN", "Load per link", "two-parties", "k1=2", "14.3 MB",
    ):  # fmt: skip
        assert expected in page.text, expected
    assert page.seen.count("script") == 1
    assert "did not finish" not in page.text


def test_the_costs_of_plugins_in_python_are_shown(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(mode="live"), render=render)
    seconds, rounds = record(recorder, iterations=20)
    for _ in range(2):  # processes
        recorder.python({"accel mine: geomx_codec": (400, 0.02, 0.001)})
    results = recorder.finish(seconds, rounds, wall_seconds=1.5)
    text = check(page_of(tmp_path)).text
    part = 0.002 / 2 / results.summary["seconds_per_iteration"]["mean"]
    for expected in ("accel mine: geomx_codec", "2 ms", "100 µs", units.share(part)):
        assert expected in text.partition("Plugins in Python")[2], expected
    told = [list(column.cells) for column in results.table().columns]
    assert "2 ms" in str(told[1][told[0].index(Text("accel mine"))])
    run(tmp_path / "plain")
    assert "Plugins in Python" not in page_of(tmp_path / "plain")


def test_mean_rounds_and_residuals_of_servers_are_shown(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(mode="live"), render=render)
    seconds, rounds = record(recorder, iterations=20)
    server, hub = "beijing/server", "hub/global_server0"
    phases = {"compute": 2.0, "gather": 0.2, "answer": 1.8}
    link = {"peer": hub, "push_values": (10, 0.5), "pull_values": (0, 0.0)}
    counts = {"node": {"rounds": 10}, "links": [link], "residuals": {"push": 1.25}}
    recorder.servers.add(
        server, counts | {"rounds": {"phases": phases, "children": {"beijing/worker1": (7, 0.0)}}}
    )
    recorder.finish(seconds, rounds, wall_seconds=1.5)
    text = check(page_of(tmp_path)).text.partition("Where a round goes")[2]
    for expected in ("400 ms", "200 ms", "20 ms", "50 ms", "beijing/worker1 70 %", "1.25 (push)"):
        assert expected in text.partition("Timeline")[0], expected
    run(tmp_path / "simulated")
    assert "Where a round goes" not in page_of(tmp_path / "simulated")


def test_runs_without_numerics_have_no_learning_curves(tmp_path: Path) -> None:
    run(tmp_path, numerics=False)
    text = check(page_of(tmp_path)).text
    assert "Loss over time" not in text and "Accuracy over time" not in text
    assert "Time per iteration" in text


def test_a_loss_is_called_what_it_is(tmp_path: Path) -> None:
    """Scripts may report a loss on held-out data, and no accuracy."""
    for told, name in ((True, "0.5000held-out"), (False, "0.7500training, last iteration")):
        recorder = Recorder(tmp_path / str(told), header(), render=render)
        recorder.iteration("a/worker0", "a", 0, 0.0, 1.0, 0.0, 1.0, 0.75, 8)
        if told:
            recorder.evaluation(1.0, 0, None, 0.5)
        page = check(render(recorder.finish(1.0, 1, 0.1), Timeline(0), None))
        assert f"loss{name}" in page.text


def test_a_sample_of_a_hundred_workers_is_shown(tmp_path: Path) -> None:
    run(tmp_path, parties=10, workers=10, iterations=6)
    page = page_of(tmp_path)
    text = check(page).text
    assert re.search(r"\d+ of 111 nodes are drawn", text)
    assert "more links carried" in text
    assert len(page) < 400_000


def test_a_page_lists_some_of_a_hundred_thousand_faults(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), render=render)
    for number in range(100_000):
        recorder.fault({"time_s": 0.5 * number, "what": "reset", "link": ["beijing", "hub"]})
    recorder.abort("interrupted")
    page = page_of(tmp_path)
    text = check(page).text
    assert "faults[99].what" in text and "faults[100].what" not in text
    assert "99,900 more, in summary.json" in text
    assert len(page) < 400_000


def test_an_aborted_run_shows_the_reason_and_its_results(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), render=render)
    record(recorder, iterations=2)
    recorder.abort("node beijing/worker0 was lost")
    text = check(page_of(tmp_path)).text
    assert "This run did not finish: node beijing/worker0 was lost" in text
    assert "Timeline" in text


@pytest.mark.parametrize("head", [header(), {"schema": 1, "mode": "sim"}], ids=["all", "least"])
def test_a_run_without_results_has_a_page(tmp_path: Path, head: dict) -> None:
    recorder = Recorder(tmp_path, head, render=render)
    recorder.python({"accel mine: geomx_codec": (3, 0.5, 0.25)})
    recorder.abort("interrupted")
    text = check(page_of(tmp_path)).text
    assert "interrupted" in text
    assert "samples/s" not in text  # as of scripts, which do not say how many samples they use
    assert "accel mine: geomx_codec" in text
    assert Results.load(tmp_path).table()


def test_all_text_is_escaped(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>\"'&"
    head = header(words=[evil], sync={"name": evil, "option": evil})
    recorder = Recorder(tmp_path, head, render=render)
    recorder.iteration(evil, evil, 0, 0.0, 0.5, 0.5, 1.0, 0.5, 8)
    recorder.evaluation(1.0, 0, 0.5, float("nan"))
    recorder.span(evil, evil, evil, evil, 0.0, 1.0, note=evil)
    recorder.link(f"{evil}/server", f"hub{evil}/server", "wan", "push", 1, 1, 0.5)
    recorder.abort(evil)
    page = check(page_of(tmp_path))
    assert "img" not in page.seen
    assert page.seen.count("script") == 1


def test_dropped_spans_are_counted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), 50, render)
    seconds, rounds = record(recorder)
    recorder.finish(seconds, rounds, 1.0)
    assert "spans were dropped" in check(page_of(tmp_path)).text


def test_utilisation_is_that_of_the_most_used_edge() -> None:
    one = {"source": "beijing/server", "target": "hub/global_server0", "kind": "wan"}
    load = {"bytes": 1_250_000, "messages": 1, "busy_s": 0.0}  # 10 Mbit
    (flow,) = wan.site_flows([one | load], graph(), seconds=2.0)
    assert (flow.source, flow.target) == ("beijing", "hub")
    assert flow.use.utilisation == pytest.approx(10 / 2 / 50)  # beijing's uplink: 50 Mbit/s
    assert flow.use.bottleneck == "beijing → beijing/wan, 50 Mbit/s"
    known = {"source": "beijing", "target": "beijing/wan", "bytes": 5, "busy_s": 1.5}
    (flow,) = wan.site_flows([one | load], graph(), 2.0, [known | {"utilisation": 0.25}])
    assert (flow.use.utilisation, flow.use.busy) == (0.25, 0.75)  # other nodes also send over it
    picture = wan.drawing([one | load], graph(), 2.0, [known | {"utilisation": 0.25}])
    assert "25 %" in picture and "busy 75.0 % of the time" in picture
    (alone,) = wan.site_flows([one | load | {"busy_s": 1.0}], None, seconds=2.0)
    assert alone.use.utilisation == 0.5


def test_map_and_tables_tell_the_same_utilisation(tmp_path: Path) -> None:
    run(tmp_path)
    results = Results.load(tmp_path)
    seconds = results.summary["seconds"]
    uses = Uses(results.links, graph(), seconds, results.edges)
    flows = wan.site_flows(results.links, graph(), seconds, results.edges)
    for flow in flows:
        of_links = [
            uses.of(row)
            for row in results.links
            if (row["source"].split("/")[0], row["target"].split("/")[0])
            == (flow.source, flow.target)
        ]
        assert flow.use in of_links
        assert flow.use.utilisation == max(use.utilisation for use in of_links) > 0


def test_the_early_timeline_has_a_whole_synchronisation() -> None:
    """Where the first iterations only compute, it is drawn to its last answer."""
    rows = [
        {"iteration": number, "start_s": float(number), "end_s": number + 1.0}
        for number in range(100)
    ]

    def send(source: str, target: str, start_s: float, number: int) -> Span:
        name, party = f"push to {target}", source.partition("/")[0]
        return Span(source, party, name, "send", start_s, 0.4, {"round": number})

    before = send("a/server", "hub/global", -0.5, 0)  # initial values
    local = [send("a/worker", "a/server", float(at), at // 5) for at in range(4, 100, 5)]
    rounds = [
        span
        for at, number in ((19.2, 1), (39.2, 2))
        for span in (
            send("a/server", "hub/global", at, number),
            send("hub/global", "a/server", at + 1, number),
        )
    ]
    spans = [before, *local, *rounds]
    early, last = gantt.windows(spans, rows)
    assert early == ("Iterations 0 to 20, with the first synchronisation", 0.0, 21.0)
    assert last[1:] == (99.0, 100.0)
    assert gantt.windows(spans, rows[:21]) == [("The whole run", 0.0, 99.4)]
    first = ("The first 3 iterations", 0.0, 3.0)
    assert gantt.windows([before, send("a/worker", "hub/global", 1.5, 1)], rows)[0] == first
    assert gantt.windows([before], rows)[0] == first
    assert gantt.windows([before, *local], rows)[0][1:] == (0.0, 5.0)  # of one party
    late = [send("a/server", "hub/global", 60.2, 1), send("hub/global", "a/server", 63.0, 1)]
    title = "Iterations 59 to 63, with the first synchronisation"
    assert gantt.windows([*local, *late], rows)[0] == (title, 59.0, 64.0)


def test_a_quantity_has_one_unit_on_a_page(tmp_path: Path) -> None:
    run(tmp_path)
    page = page_of(tmp_path)
    assert set(re.findall(r">time in (\w+)<", page)) == {"s"}
    timeline = page.partition("<h2>Timeline")[2].partition("</section>")[0]
    assert set(re.findall(r'tick middle">[\d.]+ (\w+)<', timeline)) == {"s"}
    text = check(page).text
    pace = text.partition("Where an iteration goes")[2].partition("The mean of")[0]
    pace += text.partition("time per iteration")[2].partition("total")[0]
    assert len(re.findall(r"\d (ms|s|µs)", pace)) == 6
    assert set(re.findall(r"\d (ms|s|µs)", pace)) == {"ms"}
    assert "Time per iteration, in ms" in text
    unit = units.time_unit(0.36)
    assert [unit.show(s) for s in (0.36, 2.5, 0.00123, 0, None)] == [
        "360 ms", "2,500 ms", "1.23 ms", "0 ms", "-",
    ]  # fmt: skip
    chart = line_chart(
        "t", [Series("a", "series-0", [(0.0, 0.1), (1.0, 0.2)])], x_label="x", x_text=str,
        y_text=unit.show, y_unit=unit.seconds, y_range=(0.0, None),
    )  # fmt: skip
    assert re.findall(r'tick end">(\d+)', chart) == ["0", "50", "100", "150", "200"]


def test_utilisation_is_explained_once(tmp_path: Path) -> None:
    run(tmp_path)
    assert page_of(tmp_path).count(UTILISATION) == 1


def test_the_best_value_is_marked_and_close_ones_are_dots() -> None:
    values, texts = [0.97, None, 0.98], ["97.0 %", "not reached", "98.0 %"]
    panel = Panel("t", values, texts, 0.97, "98.0 %", dots=True)
    drawn = Chart("title", ["a", "b", "c"], [panel], 0).picture()
    assert drawn.count("<circle") == 2 and "<rect" not in drawn
    assert re.findall(r'class="end best"[^>]*>([^<]+)', drawn) == ["98.0 %"]
    (base, _), (best, _) = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn)
    assert float(best) - float(base) > 100  # on a scale of their own, with its ends
    ends = re.findall(r'x="([\d.]+)"[^>]*class="tick middle">([^<]+)', drawn)
    assert ends == [(base, "97.0 %"), (best, "98.0 %")]
    plain = Chart("title", ["a", "b", "c"], [Panel("t", values, texts, 0.97)], 0).picture()
    assert plain.count("<rect") == 2 and "<circle" not in plain


def test_neither_the_yardstick_nor_bars_cross_a_label() -> None:
    names, values = ["fsa", "hfa + bisparse"], [2.0, 1.0]
    panels = [Panel("t", values, ["2.00 s", "not reached"], base) for base in (2.0, 1.0, 5.0)]
    chart = Chart("title", names, panels, 0)
    pictures = [chart.picture(), *chart.on_page().partition("narrow")[2].split("<svg")[1:]]
    assert len(pictures) == 4
    for picture in pictures:
        labels = re.findall(r'<text x="([\d.]+)"[^>]*class="end">(2.00 s|not reached)', picture)
        lines = re.findall(r'<line x1="([\d.]+)"[^>]*yardstick', picture)
        bars = re.findall(r'<rect x="([\d.]+)"[^>]* width="([\d.]+)"', picture)
        assert len(labels) == len(bars) == 2 * len(lines) > 0
        for number, (x, text) in enumerate(labels):
            begins = float(x) - 6.6 * len(text)
            start, width = map(float, bars[number])
            assert max(float(lines[number // 2]), start + width) < begins < float(x)
    for narrow in pictures[1:]:  # at 390 points, letters are not smaller than on a wide screen
        assert float(re.findall(r'viewBox="0 0 ([\d.]+)', narrow)[0]) < 390


def test_sites_with_coordinates_are_placed_by_them() -> None:
    sites = graph()
    for index, site in enumerate(("hub", "beijing", "chengdu")):
        sites.nodes[site].update(longitude=10.0 * index, latitude=50.0)
    rows = [
        {"source": "beijing/server", "target": "chengdu/server", "kind": "wan", "bytes": 9,
         "messages": 1, "busy_s": 0.1},
    ]  # fmt: skip
    drawing = wan.drawing(rows, sites, 1.0)
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawing)]
    assert places == sorted(places) and len(set(places)) == 3


def test_the_texts_of_both_directions_of_a_steep_link_do_not_cover_each_other() -> None:
    sites = graph()
    for index, site in enumerate(("hub", "beijing", "chengdu")):
        sites.nodes[site].update(longitude=0.0, latitude=10.0 * index)
    ways = (("beijing", "chengdu"), ("chengdu", "beijing"))
    rows = [
        {"source": f"{source}/server", "target": f"{target}/server", "kind": "wan",
         "bytes": 6_240_000, "messages": 1, "busy_s": 0.1}
        for source, target in ways
    ]  # fmt: skip
    found = re.findall(r'x="([\d.]+)"[^>]* class="tick( end)? halo"', wan.drawing(rows, sites, 1.0))
    (left, left_end), (right, right_end) = sorted((float(x), end) for x, end in found)
    assert left < right and left_end and not right_end


def test_a_page_names_the_files_that_are_beside_it(tmp_path: Path) -> None:
    words = ["workload=tiny", "iterations=1", "sim.edges_every_s=0.1"]
    for numerics in ("true", "false"):
        directory = tmp_path / numerics
        geomx.run([*words, f"numerics={numerics}", f"hydra.run.dir={directory}"])
        said = (directory / "report.html").read_text(encoding="utf-8").partition("<footer>")[2]
        assert ("parameters.npz" in said) == (directory / "parameters.npz").exists()
        assert ("parameters.npz" in said) == (numerics == "true")
        assert "edges_over_time.csv" in said and "trace.json for Perfetto" in said


def test_ticks_are_round_numbers_within_the_range() -> None:
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(3.0, 3.0) == [3.0]
    for low, high in ((0.013, 0.9), (-5.0, 1e4), (1e-6, 2e-6), (7.35, 7.36)):
        found = ticks(low, high)
        assert 2 <= len(found) <= 11
        assert all(low - 1e-9 <= value <= high + 1e-9 for value in found)


def test_a_chart_omits_values_that_are_not_finite() -> None:
    points = [(0.0, 1.0), (1.0, float("nan")), (2.0, float("inf")), (3.0, 2.0)]
    style = {"x_label": "s", "x_text": str, "y_text": str}
    chart = line_chart("t", [Series("a", "series-0", points)], **style)
    assert "nan" not in chart and "inf" not in chart
    assert line_chart("t", [Series("a", "series-0", points[1:3])], **style) == ""


def test_a_sample_keeps_order_and_size() -> None:
    party = {f"p{p}/w{w}": f"p{p}" for p in range(40) for w in range(9)}
    chosen = gantt.sample(list(party), party)
    assert len(chosen) <= gantt.MOST_NODES
    assert chosen == sorted(chosen, key=list(party).index)
    assert gantt.spread("abcdefghij", 3)[::2] == ["a", "j"]


def test_tags_escape_children_and_attributes() -> None:
    assert tag("b", "<i>", title='"&') == '<b title="&quot;&amp;">&lt;i&gt;</b>'
    assert tag("b", Markup("<i></i>"), x=1.0, y=None) == '<b x="1"><i></i></b>'


def test_units_are_readable() -> None:
    assert [units.size(n) for n in (0, 999, 1000, 14_302_240, 2.5e12)] == [
        "0 B", "999 B", "1 kB", "14.3 MB", "2.50 TB",
    ]  # fmt: skip
    assert [units.duration(s) for s in (0, 2e-6, 0.0123, 0.9999, 61.5, None)] == [
        "0 s", "2 µs", "12.3 ms", "1.00 s", "61.5 s", "-",
    ]  # fmt: skip
    assert units.signed_share(0.032) == "+3.20 %"
    assert units.signed_share(0.0) == "equal"
