"""Settings of the tests: which are slow, and how Hypothesis draws."""

import os

import pytest
import torch
from hypothesis import Phase, settings

# Triton reads this when it is first imported: without a GPU its kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

YES = {
    name
    for name in ("CI", "SLOW")
    if os.environ.get(name, "").lower() not in ("", "0", "no", "false")
}

# A busy machine is no fault of the code; a failure in CI must come back when it is run again.
settings.register_profile("book", deadline=None, derandomize="CI" in YES, print_blob=True)
# A planted fault is to be found; making its example small takes minutes that nobody reads.
found = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
settings.register_profile("planted", settings.get_profile("book"), phases=found)
settings.load_profile("book")


@pytest.fixture
def one_thread():
    """Small models are quickest, and repeat bit for bit, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def traced():
    """A backend for torch.compile that runs what it is given, and the graphs that it was given."""
    torch.compiler.reset()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    return backend, graphs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is marked slow, unless CI or SLOW is set."""
    if YES:
        return
    skip = pytest.mark.skip(reason="slow; make test SLOW=1 runs them")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def book():
    """The book as it was built last, for the tests of what is made of its pages."""
    from paper_files import built_book

    return built_book()


@pytest.fixture(scope="session")
def chromium():
    """A Chromium's path; without one, what needs it is left out."""
    from paper_files import give_up

    from rope.book.paper import browser

    try:
        return browser.chromium()
    except FileNotFoundError as error:
        give_up(str(error))


@pytest.fixture(scope="session")
def articles(book, chromium):
    """Its pages' articles, cleaned for paper; no test changes them."""
    from rope.book.paper.articles import read_articles

    return read_articles(book)
