"""The scripts of examples/ run, on small data, and print what they promise."""

import os
import random
import subprocess
import sys

import pytest

from conftest import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def run(name, *arguments, cwd=None):
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120,
                          env={**os.environ, "MPLCONFIGDIR": str(cwd or "/tmp")})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_generate():
    out = run("generate.py")
    assert "It was a fine morning, and " in out and "60 tokens" in out
    assert out.count("\n* ") == 3 and run("generate.py").splitlines()[1] == out.splitlines()[1]


def test_stream_asyncio():
    out = run("stream_asyncio.py")
    assert all(f"stream {i}: " in out for i in range(3)) and out.endswith("cancelled\n")


@pytest.fixture
def log(tmp_path):
    dice = random.Random(1)
    lines = [f"10:{i // 60:02}:{i % 60:02} GET /index.html 200 {dice.choice('abc')}" for i in range(80)]
    lines[60] = "10:01:00 kernel panic: Zürich unreachable, giving up"
    file = tmp_path / "test.log"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_log_surprise(log, tmp_path):
    out = run("log_surprise.py", log, "--plot", tmp_path / "plot.png", cwd=tmp_path)
    first = out.splitlines()[0]
    assert "kernel panic" in first and "bits" in first
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        assert out.count("#") > 80
    else:
        assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_log_surprise_without_matplotlib(log, tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run([sys.executable, str(EXAMPLES / "log_surprise.py"), str(log)], check=True,
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.stdout.count("\n") == 10 + 80


def test_explore_forks():
    out = run("explore_forks.py")
    assert out.count(" bits  It was") == 3 and "rolled back exactly: True" in out


def test_transformers_swap():
    pytest.importorskip("transformers")
    run("transformers_swap.py")
