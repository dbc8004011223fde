"""``geomx export chakra``: execution traces, read with protobuf's own library and replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geomx import runner
from geomx.cli.main import main
from geomx.explaining.chakra import COMPUTES, RECEIVES, SENDS

pytest.importorskip("google.protobuf")

# What is used of https://github.com/mlcommons/chakra, schema/protobuf/et_def.proto:
SCHEMA = {
    "AttributeProto": {
        "name": ("string", 1), "int32_val": ("int32", 7), "int64_val": ("int64", 9),
        "uint64_val": ("uint64", 13), "bool_val": ("bool", 27), "string_val": ("string", 29),
    },
    "GlobalMetadata": {"version": ("string", 1), "attr": ("*AttributeProto", 2)},
    "Node": {
        "id": ("uint64", 1), "name": ("string", 2), "type": ("int32", 3),
        "data_deps": ("*uint64", 5), "start_time_micros": ("uint64", 6),
        "duration_micros": ("uint64", 7), "attr": ("*AttributeProto", 10),
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def kinds() -> dict[str, Any]:
    """Return the classes of the schema's messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="t", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for called, (kind, number) in fields.items():
            plain = kind.lstrip("*")
            label = field.LABEL_REPEATED if kind != plain else field.LABEL_OPTIONAL
            made = message.field.add(name=called, number=number, label=label)
            if plain in SCHEMA:
                made.type, made.type_name = field.TYPE_MESSAGE, f".t.{plain}"
            else:
                made.type = getattr(field, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"t.{name}") for name in SCHEMA}
    return {name: message_factory.GetMessageClass(each) for name, each in found.items()}


def messages(path: Path) -> Iterator[bytes]:
    """Yield the messages of a file, each of which has its length in front."""
    content, place = path.read_bytes(), 0
    while place < len(content):
        length = shift = 0
        while True:
            byte = content[place]
            place, length, shift = place + 1, length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        yield content[place : place + length]
        place += length


class Graphs:
    """The traces of a run."""

    def __init__(self, folder: Path, kinds: dict[str, Any]) -> None:
        self.names: list[str] = json.loads((folder / "nodes.json").read_text())
        self.nodes: list[dict[int, Any]] = []
        self.sends: dict[tuple[int, int, int], tuple[int, Any]] = {}
        self.receives: dict[tuple[int, int, int], tuple[int, Any]] = {}
        for number, name in enumerate(self.names):
            first, *others = messages(folder / f"geomx.{number}.et")
            about = kinds["GlobalMetadata"].FromString(first)
            assert (about.version, about.attr[0].string_val) == ("0.0.4", name)
            nodes = [kinds["Node"].FromString(each) for each in others]
            self.nodes.append({node.id: node for node in nodes})
            for node in nodes:
                if node.type in (SENDS, RECEIVES):
                    told = {each.name: each for each in node.attr}
                    ends = tuple(told[f"comm_{e}"].int32_val for e in ("src", "dst", "tag"))
                    assert ends[node.type == RECEIVES] == number
                    messages_of = self.sends if node.type == SENDS else self.receives
                    messages_of[ends] = told["comm_size"].int64_val, node  # type: ignore[index]
        self._ends: dict[tuple[int, int], int] = {}

    def replayed_us(self) -> int:
        """Return how long the run takes if everything begins when what it depends on is over."""
        sent = {
            (place[1], node.id): (place[0], self.sends[place][1])
            for place, (_, node) in self.receives.items()
        }
        pending = [(n, node) for n, nodes in enumerate(self.nodes) for node in nodes.values()]
        for number, node in sorted(pending, key=lambda each: each[1].start_time_micros):
            self._end(number, node, sent)
        return max(self._ends.values())

    def _end(self, number: int, node: Any, sent: dict[tuple[int, int], tuple[int, Any]]) -> int:
        known = self._ends.get((number, node.id))
        if known is not None:
            return known
        befores = (self.nodes[number][each] for each in node.data_deps)
        begins = max((self._end(number, each, sent) for each in befores), default=0)
        if node.type == RECEIVES:  # its duration begins when the first byte leaves
            source, message = sent[number, node.id]
            begins = self._end(source, message, sent) - message.duration_micros
        self._ends[number, node.id] = begins + node.duration_micros
        return self._ends[number, node.id]


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["fsa", "hfa", "diloco", "mixedsync"])
@pytest.mark.needs("fsa", "hfa", "diloco", "mixedsync")
def test_the_graphs_have_all_messages_and_causes_that_explain_the_times(
    sync: str, tmp_path: Path, kinds: dict[str, Any]
) -> None:
    words = [f"+sync={sync}", "workload=tiny", "iterations=8", "network=two_parties"]
    words += ["sync.h=2"] if sync == "diloco" else []
    results = runner.run(*words, f"hydra.run.dir={tmp_path / 'run'}")
    assert main(["export", "chakra", str(tmp_path / "run"), "--out", str(tmp_path / "et")]) == 0
    graphs = Graphs(tmp_path / "et", kinds)
    assert len(graphs.names) == len(set(graphs.names))
    assert graphs.sends.keys() == graphs.receives.keys()
    for place, (size, message) in graphs.sends.items():
        assert graphs.receives[place][0] == size
        assert message.start_time_micros == graphs.receives[place][1].start_time_micros
    sizes = dict.fromkeys(("push", "value"), 0)
    for (source, target, _), (size, message) in graphs.sends.items():
        parties = {graphs.names[each].partition("/")[0] for each in (source, target)}
        kind = message.name.partition(" ")[0]
        if len(parties) > 1 and kind in sizes:
            sizes[kind] += size
    assert sizes["push"] == results.summary["bytes"]["wan_push"]
    assert sizes["value"] >= results.summary["bytes"]["wan_pull"]  # with the initial values
    for nodes in graphs.nodes:
        for node in nodes.values():
            for each in node.data_deps:
                ends = nodes[each].start_time_micros + nodes[each].duration_micros
                assert ends <= node.start_time_micros + 1
    computing = sum(n.type == COMPUTES for nodes in graphs.nodes for n in nodes.values())
    assert computing > 0
    observed_us = results.summary["seconds"] * 1e6
    assert graphs.replayed_us() == pytest.approx(observed_us, rel=0.05)


@pytest.mark.slow
def test_an_incomplete_timeline_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["workload=tiny", "iterations=8", "sim.max_spans=50"]
    runner.run(*words, f"hydra.run.dir={tmp_path / 'run'}")
    assert main(["export", "chakra", str(tmp_path / "run")]) == 2
    assert "larger sim.max_spans" in capsys.readouterr().err
    assert main(["export", "chakra", str(tmp_path / "none")]) == 1
