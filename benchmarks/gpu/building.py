"""Builds the programs of benchmarks/gpu with a compiler and, for a GPU, nvcc; without CMake.

There are three: tests of the kernels and of their use in pushes, codecs and updates (BATTERY, in
runtime_cpp/tests), and, beside this file, timings and live training. They contain the kernels, the
protocol, its driver and the plugins' codecs; flags are those of runtime_cpp/CMakeLists.txt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "runtime_cpp"
PROTOCOL = [f"runtime_cpp/{part}" for part in ("core", "core/optimizers", "net", "io")]
PROTOCOL += [f"plugins/{name}" for name in ("fp16", "bisparse", "twobit")]
BATTERY = ("device_test", "device_staging_test", "server_device_test")
CXX = ["-std=c++20", "-O3", "-DNDEBUG", "-Wall", "-Wextra", "-ffp-contract=off"]
CUDA = ["-std=c++20", "-O3", "-DNDEBUG", "--fmad=false", "-Werror"]
CUDA += ["all-warnings,cross-execution-space-call", "-lineinfo"]


@dataclass(frozen=True)
class Job:
    """A source file, its object file, and the compiler command."""

    source: Path
    object: Path
    words: list[str]


def compiler() -> str:
    """Return the C++ compiler.

    Raises:
        SystemExit: There is none.
    """
    found = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if found is None:
        raise SystemExit("needs a C++20 compiler: set CXX to one")
    return found


def nvcc() -> str:
    """Return the CUDA compiler.

    Raises:
        SystemExit: There is none.
    """
    places = [os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    for place in places:
        if place and Path(place).exists():
            return place
    raise SystemExit("needs nvcc: set CUDACXX to its path, or measure the processor: --device cpu")


def build(folder: Path, gpu: bool, architecture: str = "native") -> dict[str, Path]:
    """Compile and link.

    Args:
        folder: Output folder.
        gpu: Whether to build with CUDA.
        architecture: The GPU's architecture, as for nvcc.

    Returns:
        The programs ``device_tests``, ``device_timings`` and ``device_live``.

    Raises:
        RuntimeError: A file does not compile; the message has the compiler's output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    version = f'-DGEOMX_CUDA_BUILD="CUDA for {architecture}"'
    plain = [compiler(), *CXX, f"-I{NATIVE}", "-c"]
    device = [nvcc(), *CUDA, f"-arch={architecture}", f"-I{NATIVE}", "-c"] if gpu else []
    device += ["-DGEOMX_CUDA_LOWEST=0", version]
    emulation = ["-DGEOMX_CUDA=emulated", "-DGEOMX_CUDA_LOWEST=0", '-DGEOMX_CUDA_BUILD="emulated"']
    emulated = [compiler(), *CXX, *emulation, f"-I{NATIVE}/tests/emulated", f"-I{NATIVE}", "-c"]
    emulated += ["-Wno-unknown-pragmas"]

    def job(source: Path, words: list[str], kind: str) -> Job:
        return Job(source, folder / f"{kind}-{source.name}.o", words)

    kernels, tests = NATIVE / "kernels", NATIVE / "tests"
    common = [job(path, plain, "cpu") for path in sorted(kernels.glob("*.cc"))]
    loops = ["-fno-math-errno", "-fno-trapping-math"]
    common = [
        Job(each.source, each.object, [*plain, *loops]) if each.source.stem == "loops" else each
        for each in common
    ]
    sources = sorted((kernels / "cuda").glob("*.cu"))
    if gpu:
        common += [job(path, device, "cuda") for path in sources]
    else:
        common.append(job(kernels / "cuda" / "absent.cc", plain, "cpu"))
    protocol = [
        job(path, plain, f"protocol-{path.parent.name}")
        for part in PROTOCOL
        for path in sorted((ROOT / part).glob("*.cc"))
        if path.stem == "tls_absent" or not path.stem.startswith("tls")
        if not path.stem.endswith("_test")
    ]
    battery = [
        job(path, plain, "test")
        for path in sorted(tests.glob("*.cc"))
        if path.stem in BATTERY or not (path.stem.endswith("_test") or "fuzz" in path.stem)
    ]
    battery += [job(path, [*emulated, "-x", "c++"], "emulated") for path in sources]
    battery += [job(tests / "emulated" / "runtime.cc", emulated, "emulated")]
    timings = [job(HERE / "timings.cc", plain, "timings")]
    live = [job(HERE / "live.cc", plain, "live")]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_compile, [*common, *protocol, *battery, *timings, *live]))
    programs = {}
    linker = nvcc() if gpu else compiler()
    libraries = ["-lpthread"] if gpu else ["-pthread"]
    parts = {
        "device_tests": [*protocol, *battery],
        "device_timings": timings,
        "device_live": [*protocol, *live],
    }
    for name, jobs in parts.items():
        objects = [str(each.object) for each in (*common, *jobs)]
        _call([linker, *objects, *libraries, "-o", str(folder / name)])
        programs[name] = folder / name
    return programs


def _compile(job: Job) -> None:
    """Compile one file."""
    _call([*job.words, str(job.source), "-o", str(job.object)])


def _call(words: list[str]) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\n{done.stderr[-4000:]}")
