"""Training in several processes, as a user starts it; and what it says when that goes wrong."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

from rope.book.measured.processes import available

SIZE = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "4"]
SMALL = [*SIZE, "--steps", "20", "--warmup", "2", "--learning-rate", "0.03"]
TRAIN = ["-m", "rope.book.training", "train", *SMALL]
pytestmark = pytest.mark.skipif(not available(), reason="this PyTorch was built without gloo")


def started(*command, rank=None, port=None):
    """One process, with what torchrun would tell it."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if rank is not None:
        env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, *command], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def alone():
    code, out, err = ended(started(*TRAIN))
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("across", ["data", "context"])
def test_the_loss_is_that_of_one_process(alone, across):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    code, out, err = ended(started(*torchrun, *TRAIN, "--across", across))
    assert code == 0, err
    found = json.loads(out)  # of the first process alone
    assert found["experiment"] == alone["experiment"]
    assert found["loss"] == pytest.approx(alone["loss"], abs=64 * torch.finfo().eps)
    assert alone["loss"] < 4  # something was learned: a guess costs 4.6


def test_processes_that_disagree_say_so():
    port = free_port()
    both = [started(*TRAIN, "--across", "data", "--seed", str(n), rank=n, port=port)
            for n in range(2)]  # fmt: skip
    for code, _, err in map(ended, both):
        assert code == 1 and "error: seed is 0 in process 0 and 1 in process 1" in err


def test_a_process_that_dies_ends_the_other():
    port = free_port()
    dies = (
        "import os, sys; from rope.book.training import across, __main__\n"
        "across.training_step = lambda *given: os._exit(3)\n"
        f"__main__.main({TRAIN[2:]!r} + ['--across', 'context'])"
    )
    both = (
        started(*TRAIN, "--across", "context", rank=0, port=port),
        started("-c", dies, rank=1, port=port),
    )
    (code, _, err), (dead, *_) = map(ended, both)
    assert dead == 3 and code == 1 and "\nerror: " in err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--across", "context", "--context", "15"], "seq_len is 15 for 1 devices"),
        (["--across", "context", "--position", "alibi"], "position is 'alibi' with softmax"),
        (["--across", "context", "--attention", "linear"], "with linear attention"),
        (["--across", "data", "--task", "recall", "--context", "64"], "task is 'recall', whose"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(given, says, monkeypatch, capsys):
    from rope.book.training.__main__ import main

    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": free_port()}.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))
    code = main(["train", *SMALL, *given])
    assert code == 1 and says in capsys.readouterr().err


def test_a_batch_that_two_do_not_divide_is_refused_by_both():
    port = free_port()
    both = [started(*TRAIN, "--across", "data", "--batch", "3", rank=n, port=port)
            for n in range(2)]  # fmt: skip
    for code, _, err in map(ended, both):
        assert code == 1 and "error: batch is 3 for 2 processes; it must be a multiple of 2" in err


def test_one_process_by_itself_is_told_how_to_start_several():
    code, _, err = ended(started(*TRAIN, "--across", "data"))
    assert code == 1 and "error: this is one process by itself; several must be started" in err
