"""Configure the tests: skip slow tests, set up Hypothesis, and define shared fixtures."""

import os
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import Phase, settings

# Triton reads this variable when it is first imported. Without a GPU, use Triton's interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

ROOT = Path(__file__).parents[1]
CI, SLOW = (
    os.environ.get(name, "").lower() not in ("", "0", "no", "false") for name in ("CI", "SLOW")
)

# Set no deadline, because tests may be slow on a busy machine. In CI, the examples are the same in
# each run, so that a failure can be reproduced.
settings.register_profile("book", deadline=None, derandomize=CI, print_blob=True)
# Shrinking the example that finds a planted fault takes minutes, and nobody reads the result.
phases = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
settings.register_profile("planted", settings.get_profile("book"), phases=phases)
settings.load_profile("book")


@pytest.fixture
def one_thread():
    """Run small models on one thread, which is fastest and reproducible bit for bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def traced():
    """Return a torch.compile backend that runs graphs unchanged, and the list of its graphs."""
    torch.compiler.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    return backend, graphs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked slow unless SLOW is set."""
    if SLOW:
        return
    skip = pytest.mark.skip(reason="slow; run with make test SLOW=1")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


def give_up(why: str) -> None:
    """Skip the test if this machine lacks something; fail in CI, where nothing may be missing."""
    (pytest.fail if CI else pytest.skip)(why)


@pytest.fixture(scope="session")
def smollm2():
    """Return the language model; without its file, skip the tests that need it."""
    from rope.book.model.losses import model
    from rope.book.model.weights import ModelMissing

    try:
        return model()
    except ModelMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def book():
    """Return the last built book, for tests of the files that are made from its pages."""
    from rope.book.paper.pages import read_book

    return read_book(ROOT)


@pytest.fixture(scope="session")
def chromium():
    """Return the path of a Chromium; without one, skip the tests that need it."""
    from rope.book.paper import pdf

    try:
        return pdf.chromium()
    except FileNotFoundError as error:
        give_up(str(error))


@pytest.fixture(scope="session")
def made(book, tmp_path_factory):
    """Return a function that makes a file from the book once and shares it among all workers."""

    def once(make, name: str) -> Path:
        several = "PYTEST_XDIST_WORKER" in os.environ
        folder = tmp_path_factory.getbasetemp()
        target = (folder.parent if several else folder) / name
        with FileLock(f"{target}.lock"):
            if not target.exists():
                make(book, target)
        return target

    return once
