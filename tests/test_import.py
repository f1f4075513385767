"""Test what an import loads, which modules may import each other, and the length of files."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import rope

PACKAGE = Path(rope.__file__).parent
# The layers of the package, lowest first. A module imports only from its own layer or from below.
FLOORS = (
    "checks reference symbolic",  # definitions
    "extensions frequencies positions config",
    "kernels functional",  # the operation
    "tables module",  # the PyTorch module and its tables
    "layouts axes xpos attention parallel adapters",
    "diagnose",
    # The book, from which the library imports nothing.
    "book.__init__ book.compressed book.judge book.tolerance book.measured",
    "book.training book.model",
    "book.figures",
    "book.mime",
    "book.tools",
    "book.live book.paper",
)
HEAVY = {"book", "diagnose", "reference", "symbolic"}


def run(*lines, folder=None):
    """Run lines of code in a new interpreter and return the completed process."""
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=folder, capture_output=True, text=True
    )


def test_rope_imports_nothing_but_torch_and_compiles_when_first_used():
    """Check imports, and that a rotation on a CPU doesn't import the module that needs Triton."""
    done = run(
        "import sys, torch",
        "before = set(sys.modules); import rope; own = set(sys.modules) - before",
        "assert {each.split('.')[0] for each in own} == {'rope'}, own",
        f"assert not {{each.split('.')[1] for each in own if '.' in each}} & {HEAVY}, own",
        "x = torch.ones(1, 1, 3, 4)",
        "@torch.compile(fullgraph=True, backend='eager')",
        "def rotate(x):",
        "    tables = rope.rotary_tables(3, rope.inverse_frequencies(4))",
        "    return rope.rotary_embedding(x, *tables)",
        "assert torch.equal(rotate(x), rope.RotaryEmbedding(4).rotate(x))",
        "assert 'rope.kernels.triton' not in sys.modules",
    )
    assert done.returncode == 0, done.stderr


def test_rope_works_without_numpy():
    done = run(
        "import sys, warnings; warnings.simplefilter('ignore')",
        "absent = ('numpy', 'sympy', 'matplotlib', 'altair', 'triton')",
        "sys.modules.update(dict.fromkeys(absent))",
        "import torch, rope, rope.attention, rope.axes, rope.config, rope.diagnose, rope.layouts",
        "import rope.xpos",
        "x = torch.eye(4)[None, None, :3]",
        "y = rope.RotaryEmbedding(4).rotate(x)[0, 0, 1]",
        "right = torch.tensor([0, torch.tensor(0.01).cos(), 0, torch.tensor(0.01).sin()])",
        "assert torch.allclose(y, right), y",
    )
    assert done.returncode == 0, done.stderr


def test_definitions_and_proofs_need_no_torch():
    done = run(
        "import sys, rope",
        "assert not {'torch', 'numpy', 'sympy'} & {*sys.modules}",
        "sys.modules['torch'] = None",
        "import rope.reference",
        "from rope.symbolic import prove_equal, real_symbols, rotation",
        "m, n, theta = real_symbols('m n theta')",
        "left = rotation(m * theta).T * rotation(n * theta)",
        "prove_equal(left, rotation((n - m) * theta))",
        "assert rope.reference.inverse_frequencies(4).sum() == 1.01",
    )
    assert done.returncode == 0, done.stderr


def test_submodules_load_when_named():
    rooms = {path.stem for path in PACKAGE.iterdir()} & {*dir(rope)}
    assert {"kernels", "layouts", "reference", "book"} <= rooms
    for name in rooms:
        assert rope.__getattr__(name) is sys.modules[f"rope.{name}"]


def test_type_checkers_see_into_submodules(tmp_path):
    mypy, script = pytest.importorskip("mypy.api"), tmp_path / "script.py"
    script.write_text(
        "import rope\nrope.attention.RotaryAttention(3, 'a')\nrope.kernels.explain(3)\n"
        "rope.RotaryEmbedding(4)(1, offset=2)"
    )
    output, _, _ = mypy.run([str(script)])
    assert output.count("[arg-type]") == 3, output


def test_the_public_names_are_there():
    assert all(hasattr(rope, name) for name in rope.__all__)
    assert (PACKAGE / "py.typed").exists()
    with pytest.raises(AttributeError, match="no attribute 'turn'"):
        rope.turn  # noqa: B018


FILES = {
    ".".join(("rope", *path.relative_to(PACKAGE).with_suffix("").parts)): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imported(path):
    """Yield the names that a file imports, also inside functions and with import_module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = [node for node in tree.body if ast.unparse(node).startswith("if TYPE_CHECKING")]
    tree.body = [node for node in tree.body if node not in for_types]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            yield from (each.value for each in node.args if isinstance(each, ast.Constant))


def modules(name):
    """Return the module that importing this name runs, as a set: itself, or its package."""
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        module = ".".join(parts[:end])
        if module in FILES:
            return {module}
        if f"{module}.__init__" in FILES:
            return {f"{module}.__init__"}
    return {"rope.__init__"} if parts[0] == "rope" and name != "rope" else set()


GRAPH = {
    module: {each for name in imported(path) for each in modules(name)} - {module}
    for module, path in FILES.items()
}


def test_imports_make_no_circle():
    """Check imports between files, including imports inside functions."""
    list(TopologicalSorter(GRAPH).static_order())  # raises CycleError, which names the cycle


def test_imports_point_down():
    floor = {room: i for i, rooms in enumerate(FLOORS) for room in rooms.split()}

    def room_of(module):
        parts = module.split(".")
        return ".".join(parts[1:3]) if parts[1] == "book" else parts[1]

    for module, others in GRAPH.items():
        room = room_of(module)
        if room == "__init__":
            continue
        for other in map(room_of, others):
            # rope/__init__.py exports names from "module" and the layers below it.
            level = floor["module"] if other == "__init__" else floor[other]
            assert level <= floor[room], f"{module} imports {other}"


def test_a_file_holds_one_idea():
    for module, path in FILES.items():
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, f"{module} is longer than 400 lines; split it"
        assert not text or ast.get_docstring(ast.parse(text)), f"{module} has no docstring"


def test_cited_chapters_exist():
    """Check chapter titles cited in Python and C files; a page's title must start that way."""
    chapters = PACKAGE.parent / "chapters"
    pages = [*chapters.glob("*.ipynb"), *chapters.glob("*.md")]
    first = (re.search(r'"?# ([^"\\\n]+)', page.read_text(encoding="utf-8")) for page in pages)
    titles = [heading[1] for heading in first]
    cited = r'[Cc]hapters? ("[^"]+"(?:(?:,| and) "[^"]+")*)'
    for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.c")):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for title in re.findall(r'"([^"]+)"', " ".join(re.findall(cited, text))):
            assert any(each.startswith(title) for each in titles), f"{path.name} cites {title!r}"
