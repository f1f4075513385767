"""What importing costs, which way imports point, and how long a file may be."""

import ast
import re
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import torch

import rope

PACKAGE = Path(rope.__file__).parent
# The floors of the house, lowest first: a room imports from its own floor or those below it.
FLOORS = (
    "scalars checks writable reference symbolic",  # definitions
    "extensions frequencies positions config",
    "kernels functional",  # the operation
    "following tables module",  # the layer, and what keeps its tables
    "layouts axes xpos attention parallel adapters",
    "diagnose",
    # The book's wing, of which the library imports nothing.
    "book.__init__ book.judge book.tolerance book.measured",
    "book.training",
    "book.figures",
    "book.mime",
    "book.tools",
    "book.live book.paper",
)
LIBRARY = {room for rooms in FLOORS[:5] for room in rooms.split()} | {"__init__"}
HEAVY = {"book", "diagnose", "reference", "symbolic"}


def run(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_importing_rope_and_rotating_adds_nothing_beside_torch():
    """Not the rooms that need more, nor Triton, which a CPU has no use for."""
    added = run(
        "import os, sys, torch; os.environ['TRITON_INTERPRET'] = '0'\n"
        "before = set(sys.modules); import rope; own = set(sys.modules) - before\n"
        "rope.RotaryEmbedding(4)(*[torch.ones(1, 1, 3, 4)] * 2)\n"
        "assert 'triton' not in set(sys.modules) - before\n"
        "print(*own)"
    )
    assert {name.split(".")[0] for name in added} == {"rope"}
    assert not {name.split(".")[1] for name in added if "." in name} & HEAVY


def test_rope_works_without_numpy():
    code = (
        "import sys\n"
        "absent = ('numpy', 'sympy', 'matplotlib', 'altair', 'triton')\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "import torch, rope, rope.attention, rope.axes, rope.config, rope.diagnose, rope.layouts\n"
        "import rope.xpos\n"
        "x = torch.ones(1, 1, 3, 4)\n"
        "print(*rope.RotaryEmbedding(4)(x, x)[0].shape)"
    )
    assert run(code) == ["1", "1", "3", "4"]


def test_definitions_and_proofs_need_no_torch():
    """And what does need it says so, and which ones do not, however it is named."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import rope, rope.reference\n"
        "from rope.symbolic import prove_equal, real_symbols, rotation\n"
        "m, n, theta = real_symbols('m n theta')\n"
        "left = rotation(m * theta).T * rotation(n * theta)\n"
        "prove_equal(left, rotation((n - m) * theta))\n"
        "for code in ('rope.RotaryEmbedding', 'from rope import rotary_tables', 'rope.layouts'):\n"
        "    try: exec(code)\n"
        "    except ModuleNotFoundError as error: print(error)\n"
        "print(rope.reference.inverse_frequencies(4).sum())"
    )
    told = " ".join(run(code))
    assert told.count("; pip install torch, or stay with rope.reference and rope.symbolic") == 3
    assert told.endswith(" 1.01")


def test_importing_rope_alone_imports_nothing():
    assert run("import sys, rope; print({'torch', 'numpy', 'sympy'} & {*sys.modules})") == ["set()"]


def test_compiled_code_may_name_a_function_first():
    code = (
        "import torch, rope\n"
        "@torch.compile(fullgraph=True, backend='eager')\n"
        "def turned(x):\n"
        "    return rope.rotary_embedding(x, *rope.rotary_tables(3, rope.inverse_frequencies(4)))\n"
        "print(*turned(torch.ones(1, 1, 3, 4)).shape)"
    )
    assert run(code) == ["1", "1", "3", "4"]


def test_submodules_load_when_named():
    rooms = {path.stem for path in PACKAGE.iterdir()} & set(run("import rope; print(*dir(rope))"))
    assert {"kernels", "layouts", "reference", "book"} <= rooms
    names = sorted(rooms)
    code = "import rope; print(" + ", ".join(f"rope.{name}.__name__" for name in names) + ")"
    assert run(code) == [f"rope.{name}" for name in names]


def test_beside_the_other_rope_the_import_is_refused(tmp_path):
    """One folder with the files of both, as pip leaves it without a word."""
    shutil.copytree(
        PACKAGE, tmp_path / "rope", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    (tmp_path / "rope" / "refactor").mkdir()
    result = subprocess.run(
        [sys.executable, "-c", "import rope"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "ImportError" in result.stderr and "pip uninstall rope rope-book" in result.stderr


def test_type_checkers_see_into_submodules(tmp_path):
    mypy, script = pytest.importorskip("mypy.api"), tmp_path / "script.py"
    script.write_text(
        "import rope\nrope.attention.RotaryAttention(3, 'a')\nrope.kernels.explain(3)"
    )
    told, _, _ = mypy.run([str(script)])
    assert told.count("[arg-type]") == 2, told


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
    """The names of rope that a file imports, inside functions too, and by import_module."""
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
    """The files that importing this name runs: the module itself, or the one that defines it."""
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
    """Between files, those inside functions included."""
    list(TopologicalSorter(GRAPH).static_order())  # raises CycleError, which names the circle


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
            # The package's own front gives what the layer and the floors below it define.
            level = floor["module"] if other == "__init__" else floor[other]
            assert level <= floor[room], f"{module} imports {other}"


def test_a_file_holds_one_idea():
    for module, path in FILES.items():
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 400, f"{module} has {len(lines)} lines: split it"
        assert not lines or lines[0].startswith('"""'), f"{module} does not say what it is"


# What of torch begins with an underscore and is used, with the reason. The list only gets shorter.
PRIVATE = {
    "torch._assert_async": "the one assertion that no GPU waits for, and that compiled code keeps",
    "torch._C._functorch.is_functorch_wrapped_tensor": "nothing public knows vmap's tensors",
    "torch._C._functorch.get_unwrapped": "a wrong position is refused under vmap too",
    "torch._C._are_functorch_transforms_active": "nothing public knows of a transform at work",
    "forward_ad._current_level": "nothing public knows of forward mode",
    "_base": "torch refuses to write into some views, before which nothing may have changed",
    "_buffers": "frequencies that a subclass holds itself stay in its checkpoint",
    "_parameters": "the same",
    "_apply": "the hook by which tensors that are no buffers follow a module",
    "_load_from_state_dict": "the hook that sees a checkpoint's keys",
}


def test_the_library_stands_on_what_torch_makes_public():
    """The syntax tree has each name from torch with an underscore, and attributes not ours."""
    files = [path for name, path in FILES.items() if name.split(".")[1] in LIBRARY]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    ours = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    ours |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    ours |= {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)}
    ours = {name for name in ours if not hasattr(torch.nn.Module, name)}  # torch's, overridden
    inner, names = {id(node.value) for node in attributes}, set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("torch"):
            private = "._" in node.module
            names |= {node.module if private else alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            name = ast.unparse(node)
            whole = re.fullmatch(r"(torch|forward_ad)(\.\w+)+", name)
            names |= {name if whole else node.attr} - ours
    assert {name for name in names if re.search(r"(^|\.)_(?!_)", name)} == set(PRIVATE)


def test_cited_chapters_exist():
    """In Python and C, by the title with which a page begins, or the beginning of it."""
    chapters = PACKAGE.parent / "chapters"
    pages = [*chapters.glob("*.ipynb"), *chapters.glob("*.md")]
    first = (re.search(r'"?# ([^"\\\n]+)', page.read_text(encoding="utf-8")) for page in pages)
    titles = [heading[1] for heading in first]
    cited = r'Chapters? ("[^"]+"(?:(?:,| and) "[^"]+")*)'
    for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.c")):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for title in re.findall(r'"([^"]+)"', " ".join(re.findall(cited, text))):
            assert any(each.startswith(title) for each in titles), f"{path.name} cites {title!r}"
