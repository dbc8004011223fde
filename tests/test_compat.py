"""GeoMX's and MXNet's launch scripts under ``geomx compat``: roles, variables, whole jobs."""

from __future__ import annotations

import gzip
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from geomx.compat.addresses import FOLDER, ProcessLog
from geomx.compat.membership import Membership
from geomx.compat.roles import Role, role_of
from geomx.compat.variables import (
    FEATURES,
    KNOWN,
    OBSOLETE,
    JobSettings,
    Settings,
    Variables,
    settle,
)
from geomx.errors import ConfigError, GeomxError
from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.plugin.registry import Registry

try:
    load_mxnet()
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)

HERE = Path(__file__).parent
LOCAL = {
    "DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_PS_ROOT_PORT": "9094",
    "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "2",
}  # fmt: skip
WORLD = {
    "DMLC_PS_GLOBAL_ROOT_URI": "10.0.0.9", "DMLC_PS_GLOBAL_ROOT_PORT": "9092",
    "DMLC_NUM_GLOBAL_SERVER": "1", "DMLC_NUM_GLOBAL_WORKER": "3",
}  # fmt: skip


# ---- roles ----


SERVER = {"DMLC_ROLE": "server", **LOCAL}


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"DMLC_ROLE_GLOBAL": "global_scheduler", **WORLD}, "global_scheduler"),
        ({"DMLC_ROLE_GLOBAL": "global_server", **SERVER, **WORLD}, "global_server"),
        ({**SERVER, **WORLD}, "server"),
        (SERVER, "server"),
        ({"DMLC_ROLE": "scheduler", **LOCAL}, "scheduler"),
        ({"DMLC_ROLE": "worker", **LOCAL}, "worker"),
    ],
)  # fmt: skip
def test_variables_determine_the_role_of_a_process(environ: dict[str, str], kind: str) -> None:
    role = role_of(environ)
    assert isinstance(role, Role)
    assert role.kind == kind
    assert role.party == (None if kind == "global_scheduler" else ("10.0.0.1", 9094))
    assert role.world == (("10.0.0.9", 9092) if "DMLC_NUM_GLOBAL_SERVER" in environ else None)


def test_a_process_without_a_role_is_ignored() -> None:
    assert role_of({"PATH": "/bin"}) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"DMLC_ROLE": "boss"}, "DMLC_ROLE=boss: must be one of scheduler, server, worker"),
        ({"DMLC_PS_ROOT_URI": ""}, "DMLC_PS_ROOT_URI=: must be the address of the scheduler"),
        ({"DMLC_PS_ROOT_PORT": "90940"}, "DMLC_PS_ROOT_PORT=90940: must be a whole number"),
        ({"DMLC_NUM_WORKER": "two"}, "DMLC_NUM_WORKER=two: must be a whole number"),
        ({"DMLC_ROLE_MASTER_WORKER": "yes"}, "DMLC_ROLE_MASTER_WORKER=yes: must be 0 or 1"),
    ],
)
def test_an_invalid_variable_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        role_of({"DMLC_ROLE": "worker", **LOCAL, **change})


# ---- variables ----


def settled(wish: Settings | None = None, servers: int = 1, **environ: str) -> JobSettings:
    """Return the settings of a job whose first party's server has these variables."""
    result = settle(Variables([("party1", environ)]), wish or Settings(), servers)
    Registry.discover().select(result.sync, list(result.accel))  # plugins take the options
    return result


@pytest.mark.parametrize(
    ("environ", "accel"),
    [
        ({}, []),
        (
            {"ENABLE_P3": "1", "MXNET_KVSTORE_BIGARRAY_BOUND": "4000"},
            [("p3", {"slice_elements": 4000})],
        ),
        ({"ENABLE_INTER_TS": "1"}, [("tsengine", {"inter": True, "intra": False})]),
        (
            {"ENABLE_INTRA_TS": "1", "MAX_GREED_RATE_TS": "0.5"},
            [("tsengine", {"inter": False, "intra": True, "greed": 0.5})],
        ),
        (
            {"ENABLE_DGT": "1", "DMLC_K": "0.8", "ADAPTIVE_K_FLAG": "1"},
            [("dgt", {"k": 0.8, "k_min": 0.2, "adaptive": True})],
        ),
        (
            {
                "ENABLE_DGT": "1",
                "DMLC_K": "0.1",
                "DMLC_UDP_CHANNEL_NUM": "2",
                "DGT_BLOCK_SIZE": "1024",
                "DGT_CONTRIBUTION_ALPHA": "0.5",
            },
            [
                (
                    "dgt",
                    {
                        "channels": 2,
                        "k": 0.1,
                        "alpha": 0.5,
                        "block_bytes": 1024,
                        "k_min": 0.1,
                        "adaptive": False,
                    },
                )
            ],
        ),
    ],
)
def test_variables_choose_accelerators(
    environ: dict[str, str], accel: list[tuple[str, dict[str, object]]]
) -> None:
    result = settled(**environ)
    assert list(result.accel) == accel
    assert result.sync == ("fsa", {})
    assert result.notes == []


def test_the_master_also_selects_plugins() -> None:
    assert settled(Settings("dist_async")).sync == ("mixedsync", {})
    hfa = settled(MXNET_KVSTORE_USE_HFA="1", MXNET_KVSTORE_HFA_K1="20", MXNET_KVSTORE_HFA_K2="10")
    assert hfa.sync == ("hfa", {"k1": 20, "k2": 10, "weighting": "parties"})
    assert settled(servers=2).accel == (("multigps", {}),)
    sparse = {"type": "bsc", "threshold": 0.02}
    options = {"ratio": 0.02, "momentum": 0.9, "warmup_rounds": 0, "pull": True}
    options |= {"steps": False, "flush": False}
    large = {"MXNET_KVSTORE_SIZE_LOWER_BOUND": "1000"}
    chosen = settled(Settings(compression=sparse), **large).accel
    assert chosen == (("bisparse", {**options, "min_elements": 1000}),)
    mixed = Settings(compression=sparse, keys=[(1000, "float16"), (5000, "float32")])
    assert settled(mixed, **large).accel == (("mpq", {**options, "size_lower_bound": 1001}),)
    assert settled(Settings(keys=[(10, "float16")])).accel == (("fp16", {}),)
    two_bits = Settings(compression={"type": "2bit", "threshold": 0.5})
    assert settled(two_bits).accel == (("twobit", {"threshold": 0.5}),)
    with pytest.raises(ConfigError, match="gradient_compression=zip: must be bsc, 2bit or none"):
        settled(Settings(compression={"type": "zip"}))


@pytest.mark.parametrize(
    ("environ", "wish", "note"),
    [
        ({"PS_RESEND": "1"}, Settings(), "PS_RESEND=1: has no effect: connections lose nothing"),
        ({"DMLC_K": "0.8"}, Settings(), "DMLC_K=0.8: has no effect without ENABLE_DGT=1"),
        ({"ENABLE_DGT": "3"}, Settings(), "ENABLE_DGT=3: is treated as 1: blocks that contribute"),
        ({"MAX_GREED_RATE_TS": "1"}, Settings(), "MAX_GREED_RATE_TS=1: has no effect without"),
        ({"MXNET_KVSTORE_USE_HFA": "1"}, Settings("dist_async"), "MXNET_KVSTORE_USE_HFA=1: contra"),
        ({}, Settings(keys=[(9, "float16"), (5, "float32")]), "there are float16 and float32 keys"),
    ],
)  # fmt: skip
def test_variables_without_effect_are_named_once(
    environ: dict[str, str], wish: Settings, note: str
) -> None:
    (found,) = settled(wish, **environ).notes
    assert found.startswith(note)


def test_conflicting_variables_are_named_and_the_first_is_used() -> None:
    said = Variables([("party1", {"ENABLE_P3": "1"}), ("party2", {"ENABLE_P3": "0"})])
    assert [name for name, _ in settle(said, Settings(), 1).accel] == ["p3"]
    assert said.notes == ["ENABLE_P3: 1 for party1 but 0 for party2; 1 is used"]


def test_an_invalid_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="DMLC_K=much: must be a number"):
        settled(ENABLE_DGT="1", DMLC_K="much")
    with pytest.raises(GeomxError):
        settled(ENABLE_DGT="1", DMLC_K="1.5")


def documented() -> dict[str, tuple[str, str]]:
    """Return the table of docs/moving.md: the meaning of each variable, and the remark."""
    text = (HERE.parent / "docs" / "moving.md").read_text(encoding="utf-8")
    table = text.partition("<!-- variables -->")[2].partition("<!-- end -->")[0]
    rows = [line.strip("| ").split(" |") for line in table.splitlines()[3:] if line]
    return {row[0].strip("`"): (row[1].strip(), "".join(row[2:]).strip()) for row in rows}


def test_every_variable_is_documented() -> None:
    table = documented()
    assert set(table) == set(KNOWN)
    assert {name: why for name, (what, why) in table.items() if what == "nothing"} == OBSOLETE


SETTINGS = {
    name: re.findall(r"`((?:accel|sync|runtime)\.[\w.]+)`", what)
    for name, (what, _) in documented().items()
}


VALUES = {
    "MXNET_KVSTORE_HFA_K1": "3", "MXNET_KVSTORE_HFA_K2": "3", "DMLC_K_MIN": "0.1",
    "DGT_CONTRIBUTION_ALPHA": "0.7", "DGT_BLOCK_SIZE": "2048",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, options in SETTINGS.items() if options])
def test_a_variable_sets_the_documented_options(name: str) -> None:
    """With its switch, a variable sets the options in the table and no others."""
    switch = {other: each for each, others in FEATURES.items() for other in others}
    switch |= {"MAX_GREED_RATE_TS": "ENABLE_INTER_TS", "MXNET_KVSTORE_BIGARRAY_BOUND": "ENABLE_P3"}
    sparse = Settings(compression={"type": "bsc"})

    def options(**environ: str) -> dict[str, object]:
        result = settled(sparse, 2, **environ)
        sync, periods = result.sync
        found: dict[str, object] = {f"sync.{sync}": True}
        found |= {f"sync.{option}": value for option, value in periods.items()}
        for accel, chosen in result.accel:
            found |= {f"accel.{accel}": True}
            found |= {f"accel.{accel}.{option}": value for option, value in chosen.items()}
        return found | {f"runtime.{option}": value for option, value in result.runtime.items()}

    without = {switch[name]: "1"} if name in switch else {}
    before, after = options(**without), options(**without, **{name: VALUES.get(name, "1")})
    changed = {option for option, value in after.items() if before.get(option, value) != value}
    changed |= after.keys() - before.keys()
    expected = set(SETTINGS[name])
    assert expected <= changed
    if name not in FEATURES:  # a switch adds the options of its plugin
        assert changed == expected


# ---- whole jobs ----


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of IDX files: ten patterns with noise, 400 for training and 100 held out."""
    folder = tmp_path_factory.mktemp("digits")
    generator = np.random.default_rng(3)
    patterns = generator.integers(0, 160, (10, 28, 28))
    for part, samples in (("train", 400), ("t10k", 100)):
        labels = generator.integers(0, 10, samples).astype(np.uint8)
        noise = generator.integers(0, 95, (samples, 28, 28))
        images = (patterns[labels] + noise).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">{1 + array.ndim}I", 0x800 | array.ndim, *array.shape)
            with gzip.open(folder / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(head + array.tobytes())
    return folder


def compat(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``geomx compat`` with the launch script and the training script."""
    program = "import sys; from geomx.cli.main import main; sys.exit(main(sys.argv[1:]))"
    split = words.index("--")
    script = [sys.executable, str(HERE / "compat_script.py"), *words[:split], "--"]
    train = [sys.executable, str(HERE / "compat_train.py"), *words[split + 1 :]]
    return subprocess.run(
        [sys.executable, "-c", program, "compat", "--", *script, *train],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def ends(folder: Path) -> dict[str, dict[str, object]]:
    """Return how each process ended, by name."""
    found = {}
    for path in folder.rglob("*.jsonl"):
        end = json.loads(path.read_text().splitlines()[-1])["end"]
        found[end["name"]] = end
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "train", "processes"),
    [
        (["1", "2", "1", "PS_RESEND=1", "ENABLE_INTRA_TS=1"], ["--half"], 8),
        (["2", "1", "2", "ENABLE_P3=1", "ENABLE_DGT=1", "ENABLE_INTER_TS=1"], [], 11),
        (
            ["2", "1", "1", "MXNET_KVSTORE_SIZE_LOWER_BOUND=1000"],
            ["--compress", "bsc", "--half", "--steps", "60"],
            10,
        ),
        (["2", "1", "1"], ["--type", "dist_async", "--steps", "60"], 10),
        (
            ["2", "2", "1", "MXNET_KVSTORE_USE_HFA=1", "MXNET_KVSTORE_HFA_K2=4"],
            ["--local"],
            12,
        ),
    ],
    ids=["intra-fp16", "accelerators", "mpq", "mixedsync", "hfa"],
)
def test_a_launch_script_trains(
    tmp_path: Path, digits: Path, job: list[str], train: list[str], processes: int
) -> None:
    done = compat(tmp_path, *job, "--", str(digits), *train)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("outputs/")
    how = ends(tmp_path)
    assert len(how) == processes
    assert {end["status"] for end in how.values()} == {0}
    logs = [path.read_text() for path in tmp_path.rglob("party*worker*.log")]
    workers = int(job[0]) * int(job[1])
    assert len(logs) == workers
    for log in logs:
        assert f"of {job[1]}, {workers} in all" in log
        assert float(re.findall(r"accuracy ([\d.]+)", log)[0]) > 0.8, log
        # Servers run an optimizer if nothing is compressed and gradients are pushed.
        refused = 0 if {"--compress", "--half", "--local"} & {*train} else 2
        assert log.count("and that of this job does not train") == refused, log
    if "dist_async" not in train:  # all workers end with the same model
        assert len({re.findall(r"sum ([-\d.]+)", log)[0] for log in logs}) == 1
    assert done.stderr.count("PS_RESEND=1: has no effect") == ("PS_RESEND=1" in job)


@pytest.mark.slow
def test_a_flat_job_of_mxnet_trains(tmp_path: Path, digits: Path) -> None:
    train = [str(digits), "--compress", "bsc", "--steps", "60"]
    done = compat(tmp_path, "0", "2", "2", "TRAINING_MASTER=1", "--", *train)
    assert done.returncode == 0, done.stderr
    assert len(ends(tmp_path)) == 5
    assert float(re.findall(r"accuracy ([\d.]+)", done.stdout)[0]) > 0.8


def flat(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run ``geomx compat`` with a flat job of two workers that run this program."""
    main = "import sys; from geomx.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program]
    script = [sys.executable, str(HERE / "compat_script.py"), "0", "2", "1", "--", *command]
    return subprocess.run(
        [sys.executable, "-c", main, "compat", "--", *script],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# The part before the last line is what Python does by itself from 3.12 on.
IDLE = """
import threading
start = threading.Thread.start
def unless_the_program_has_ended(thread):
    if not threading.main_thread().is_alive():
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)
threading.Thread.start = unless_the_program_has_ended
import mxnet; print(mxnet.kv.create('dist_sync').rank)
"""


@pytest.mark.slow
@pytest.mark.interpreter
def test_workers_that_only_create_the_store_exit(tmp_path: Path) -> None:
    done = flat(tmp_path, IDLE)
    assert done.returncode == 0, done.stderr
    assert {end["status"] for end in ends(tmp_path).values()} == {0}
    assert len(ends(tmp_path)) == 4


@pytest.mark.slow
def test_a_worker_that_fails_before_joining_ends_the_job(tmp_path: Path) -> None:
    failing = "import sys, mxnet; sys.argv[-1] == '0' and 1 / 0; mxnet.kv.create('dist_sync').rank"
    done = flat(tmp_path, failing)
    assert done.returncode == 1
    assert "ended before the job began" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (
            "import mxnet as mx; store = mx.kv.create('dist_sync')\n"
            "if store.is_master_worker: store.set_optimizer(mx.optimizer.Ftrl())\n"
            "store.init(0, mx.nd.ones(2))",
            "optimizer=ftrl: global servers run only sgd, ",
        ),
        (
            "import mxnet as mx; store = mx.kv.create('dist_sync')\n"
            "store.init(0, mx.nd.ones(2)); store.push(0, mx.nd.ones(2))\n"
            "if store.rank == 1: raise ValueError('no more data')\n"
            "store.pull(0, out=mx.nd.ones(2)); store.push(0, mx.nd.ones(2)); store.barrier()",
            "ValueError: no more data",
        ),
    ],
)
def test_the_process_is_named_whose_failure_made_the_others_fail(
    program: str, cause: str, tmp_path: Path
) -> None:
    done = flat(tmp_path, program)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert " failed: " in last
    assert cause in last


@pytest.mark.slow
def test_a_command_without_a_job_is_remarked_on(tmp_path: Path) -> None:
    main = "import sys; from geomx.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", main, "compat", "--", "true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "no process of true imported mxnet with DMLC_ROLE or " in done.stderr


@pytest.mark.slow
def test_a_process_leaves_its_log_lines_to_the_command(tmp_path: Path) -> None:
    program = """
import os, sys
from geomx.compat.addresses import ProcessLog
from geomx.terminal.log import say
ProcessLog("server", os.environ)
say("it waits", "warning")
print("of the script", file=sys.stderr)
"""
    command, environ = [sys.executable, "-c", program], {**os.environ, FOLDER: str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    (log,) = tmp_path.glob("*.log")
    assert done.stderr == "of the script\n"
    assert re.fullmatch(r"geomx: \S+ warning: it waits\nof the script\n", log.read_text())


def test_a_failing_worker_reads_its_counters_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    loop = SimpleNamespace(stats=lambda: read.append("stats"), failure=lambda: None)
    member = SimpleNamespace(node=SimpleNamespace(name="a/worker0"), loop=loop, close=list)
    worker = Membership.__new__(Membership)
    worker.members, worker._broken = [cast(Any, member)], False
    worker._log = ProcessLog("worker", {})
    monkeypatch.setattr("geomx.compat.membership.failing", lambda: True)
    worker.note_failure()  # its store leaves
    worker._end()  # its program ends
    assert read == ["stats"]


@pytest.mark.slow
def test_a_process_that_fails_ends_the_job(tmp_path: Path, digits: Path) -> None:
    done = compat(tmp_path, "1", "2", "1", "--", str(digits / "nothing"))
    assert done.returncode == 1
    assert "failed" in done.stderr
    assert "Traceback" not in done.stderr.splitlines()[-1]


STATES = """
import mxnet as mx
net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize(mx.init.One())
trainer = mx.gluon.Trainer(
    net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore="dist_sync"
)
store = mx.kv.create("dist_sync")
def step():
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 2))).sum()
    loss.backward()
    trainer.step(2)
step()
if store.is_master_worker:
    trainer.save_states("states")
store.barrier()
trainer.load_states("states")
step()
trainer.set_learning_rate(0.01)
try:
    step()
except mx.base.MXNetError as error:
    print("refused:", error)
"""


@pytest.mark.slow
def test_states_of_servers_and_changed_options_are_as_documented(tmp_path: Path) -> None:
    done = flat(tmp_path, STATES)
    assert done.returncode == 0, done.stderr
    assert "refused: learning_rate of the optimizer was changed from 0.1 to 0.01" in done.stdout


BETWEEN_KEYS = """
import time
import mxnet as mx
store = mx.kv.create('dist_sync')
store.init(0, mx.nd.ones(2))
if store.is_master_worker:
    time.sleep(2)  # its settings are handed in after a second, and the job begins
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1))
store.init(1, mx.nd.full(2, 3))
out = [mx.nd.zeros(2), mx.nd.zeros(2)]
store.push([0, 1], [mx.nd.ones(2)] * 2)
store.pull([0, 1], out=out)
print("values", *(each.asnumpy().tolist() for each in out))
"""


@pytest.mark.slow
def test_a_master_that_trains_may_take_its_time_between_keys(tmp_path: Path) -> None:
    done = flat(tmp_path, BETWEEN_KEYS)
    assert done.returncode == 0, done.stderr
    assert "values [-1.0, -1.0] [1.0, 1.0]" in done.stdout
