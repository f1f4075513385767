"""What importing costs, and that the layers import one way only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rope

PACKAGE = Path(rope.__file__).parent
LAYERS = (
    ("_compiler",),
    ("checks", "_backend", "formula", "measuring"),
    ("_inplace", "_pages", "_ways"),
    ("_blocks",),
    ("_compiled", "_few"),
    ("reference", "symbolic", "extensions", "positions"),
    ("_turn", "frequencies", "config"),
    ("functional", "following"),
    ("tables",),
    ("module", "layouts", "axes"),
    ("attention", "xpos", "accuracy", "kernels"),
    ("figures",),
    ("bench",),
    ("training",),
    ("book",),
)


def run(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_importing_rope_adds_nothing_beside_torch():
    added = run(
        "import sys, torch; before = set(sys.modules); import rope; "
        "print(*sorted(set(sys.modules) - before))"
    )
    assert {name.split(".")[0] for name in added} == {"rope"}
    lazy = (*rope._LAZY, "book")
    assert not [name for name in added if name.startswith(tuple(f"rope.{part}" for part in lazy))]


def test_rope_works_without_numpy():
    code = (
        "import sys\n"
        "absent = ('numpy', 'sympy', 'matplotlib', 'altair', 'triton')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "import torch, rope, rope.attention, rope.axes, rope.config, rope.layouts, rope.xpos\n"
        "x = torch.ones(1, 1, 3, 4)\n"
        "print(*rope.RotaryEmbedding(4)(x, x)[0].shape)"
    )
    assert run(code) == ["1", "1", "3", "4"]


def test_submodules_load_when_named():
    names = sorted(rope._LAZY - {"accuracy", "figures"})
    code = "import rope; print(" + ", ".join(f"rope.{name}.__name__" for name in names) + ")"
    assert run(code) == [f"rope.{name}" for name in names]
    assert set(names) <= set(dir(rope))


def test_unknown_names_are_unknown():
    with pytest.raises(AttributeError, match="no attribute 'rotate'"):
        rope.rotate  # noqa: B018


def test_the_public_names_are_there():
    assert all(hasattr(rope, name) for name in rope.__all__)
    assert (PACKAGE / "py.typed").exists()


def level(module):
    return next(i for i, names in enumerate(LAYERS) if module in names)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_point_one_way(path):
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own == "__init__":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for parts in (name.split(".") for name in names):
            if parts[0] != "rope" or parts[1] == own:
                continue
            if parts[1] in rope.__all__:
                continue  # a name of the package's own front, such as rope.rotary_embedding
            assert level(parts[1]) < level(own), f"{own} imports {parts[1]}"
