"""What nbval needs: kernels in the environment that made the stored outputs, and patience."""

import importlib.util
from collections.abc import Generator

import pytest

from rope.book.tools.execute import kernel_environment

# Triton has no wheels for some systems; the one chapter that is about it cannot run there.
collect_ignore = [] if importlib.util.find_spec("triton") else ["on_the_gpu.ipynb"]
OUTPUT_SECONDS = 60  # nbval's own 5 s are too few for two kernels on two busy cores


def pytest_configure(config: pytest.Config) -> None:
    """Start every kernel as `rope.book.tools.execute` does."""
    environment = kernel_environment()
    environment.__enter__()
    config.add_cleanup(lambda: environment.__exit__(None, None, None))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a cell's output time to arrive."""
    for item in items:
        if hasattr(item, "output_timeout"):
            item.output_timeout = OUTPUT_SECONDS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a cell failed, show what it printed: nbval names a new stream and not its text."""
    report = yield
    if report.failed and hasattr(item, "test_outputs"):
        for output in item.test_outputs or []:
            if "text" in output:
                report.sections.append((f"its {output['name']} now", output["text"]))
    return report
