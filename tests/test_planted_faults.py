"""Do the tests bite? With a fault planted in the package, a unit test and a chapter must fail.

A test suite that has never been seen failing proves little. The faults are the mistakes that people
make with rotary embeddings, one at a time, as a change of one line of the package.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    unit: str
    chapter: str


OPERATION, MODULE, TABLES = "rope/_turn.py", "rope/module.py", "rope/frequencies.py"
BOTH = "q, k = self._turn((q, k), *found, inverse, inplace)"
ROWS = "    if inverse:\n        sin = -sin\n"
FAULTS = [
    Fault(
        "sine with the other sign",
        OPERATION,
        ((ROWS, ROWS.replace("if inverse", "if not inverse")),),
        "functional",
        "two_layouts",
    ),
    Fault(
        "m + n in place of n - m",
        MODULE,
        (
            (
                BOTH,
                "q, k = (self._turn((x,), *found, inverse != back, inplace)[0]"
                " for x, back in ((q, False), (k, True)))",
            ),
        ),
        "module",
        "rotary_attention",
    ),
    Fault(
        "layouts swapped",
        OPERATION,
        ((ROWS, "    interleaved = not interleaved\n" + ROWS),),
        "functional",
        "from_maths_to_pytorch",
    ),
    Fault(
        "frequencies off by one",
        TABLES,
        (("torch.arange(dim // 2, dtype", "torch.arange(1, dim // 2 + 1, dtype"),),
        "frequencies",
        "many_dimensions",
    ),
    Fault(
        "last pair left out",
        OPERATION,
        (
            (
                ROWS,
                "    cos = torch.cat((cos[..., :-1], torch.ones_like(cos[..., -1:])), dim=-1)\n"
                "    sin = torch.cat((sin[..., :-1], torch.zeros_like(sin[..., -1:])), dim=-1)\n"
                + ROWS,
            ),
        ),
        "functional",
        "many_dimensions",
    ),
    Fault(
        "query rotated but not the key",
        MODULE,
        ((BOTH, "q = self._turn((q, k), *found, inverse, inplace)[0]"),),
        "module",
        "rotary_attention",
    ),
    Fault(
        "degrees for radians",
        TABLES,
        (("(-1) * inv_freq  #", "(-1) * torch.rad2deg(inv_freq)  #"),),
        "frequencies",
        "rotation_in_two_dimensions",
    ),
    Fault(
        "table rounded to bfloat16",
        TABLES,
        (
            (
                "return cos.to(dtype), sin.to(dtype)",
                "return cos.bfloat16().to(dtype), sin.bfloat16().to(dtype)",
            ),
        ),
        "frequencies",
        "properties",
    ),
    Fault(
        "angles in float32",
        TABLES,
        (
            (
                "positions.to(torch.float64).unsqueeze(-1) * inv_freq",
                "positions.float().unsqueeze(-1) * inv_freq.float()",
            ),
        ),
        "frequencies",
        "from_maths_to_pytorch",
    ),
    Fault(
        "decoding offset forgotten",
        "rope/attention/layer.py",
        (("offset = past if position_ids is None else 0", "offset = 0"),),
        "attention",
        "rotary_attention",
    ),
    Fault(
        "tables cast with the model",
        "rope/tables.py",
        (
            (
                "        if device != self.cos.device:\n"
                "            self._tables = self._moved(self._tables, device)\n",
                "        self._tables = fn(self.cos), fn(self.sin)\n",
            ),
        ),
        "module",
        "precision",
    ),
    Fault(
        "context extension dropped in silence",
        TABLES,
        (("    if extension is None:\n", "    if True:\n"),),
        "tables",
        "longer_context",
    ),
    Fault(
        "attention factor ignored",
        TABLES,
        (("    if scale != 1:\n", "    if False:\n"),),
        "tables",
        "longer_context",
    ),
    Fault(
        "fast and slow planes exchanged",
        "rope/extensions/yarn.py",
        (
            (
                "inv_freq * (1 - ramp) + inv_freq / self.factor * ramp",
                "inv_freq * ramp + inv_freq / self.factor * (1 - ramp)",
            ),
        ),
        "extensions",
        "longer_context",
    ),
    Fault(
        "second axis turned the other way",
        "rope/axes/tables.py",
        (("angle = angle + rows[axis]", "angle = angle - rows[axis]"),),
        "axes",
        "more_than_one_axis",
    ),
    Fault(
        "the kernel turns the other way",
        "rope/kernels/triton.py",
        (
            ("turned_x = x * c - y * n", "turned_x = x * c + y * n"),
            ("turned_y = y * c + x * n", "turned_y = y * c - x * n"),
        ),
        "kernels",
        "on_the_gpu",
    ),
    Fault(
        "the loop in C turns the other way",
        "rope/kernels/rotate.c",
        (
            (
                "            out[FIRST] = to_##DTYPE(a * cos[j] - b",
                "            out[FIRST] = to_##DTYPE(a * cos[j] + b",
            ),
        ),
        "backends",
        "on_the_gpu",
    ),
    Fault(
        "checkpoint converted the wrong way round",
        "rope/layouts.py",
        (("weight[interleaved_to_half(_rows", "weight[half_to_interleaved(_rows"),),
        "layouts",
        "two_layouts",
    ),
    Fault(
        "the definition itself transposed",
        "rope/reference.py",
        (
            ("matrix[even, even + 1] = -np.sin(angle)", "matrix[even, even + 1] = np.sin(angle)"),
            ("matrix[even + 1, even] = np.sin(angle)", "matrix[even + 1, even] = -np.sin(angle)"),
        ),
        "reference",
        "many_dimensions",
    ),
    Fault(
        "the symbolic rotation transposed",
        "rope/symbolic.py",
        (("sp.Matrix([[cos, -sin], [sin, cos]])", "sp.Matrix([[cos, sin], [-sin, cos]])"),),
        "symbolic",
        "eulers_formula",
    ),
    Fault(
        "the decoder's keys left where they are",
        "rope/training/decoder.py",
        (("        if places.key is not None:\n", "        if False:\n"),),
        "training_positions",
        "what_the_model_uses",
    ),
    Fault(
        "the decoder sees the character that it is asked for",
        "rope/training/data.py",
        (("return text[at], text[at + 1]", "return text[at + 1], text[at + 1]"),),
        "training",
        "training",
    ),
    Fault(
        "an extension that is set and not used",
        "rope/training/positions.py",
        (("            extension=self.extension,\n", ""),),
        "training_record",
        "beyond_the_trained_length",
    ),
]


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path):
    for folder in ("rope", "tests", "chapters"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught_twice(fault, tree):
    path = tree / fault.file
    source = path.read_text(encoding="utf-8")
    for right, wrong in fault.edits:
        assert source.count(right) == 1, f"{fault.file} no longer holds {right!r} once"
        source = source.replace(right, wrong)
    path.write_text(source, encoding="utf-8")

    unit = run(tree, f"tests/test_{fault.unit}.py")
    assert unit.returncode == 1, f"no unit test caught it:\n{unit.stdout[-2000:]}"
    chapter = run(tree, "--nbval", "--nbval-current-env", f"chapters/{fault.chapter}.ipynb")
    assert chapter.returncode == 1, f"no cell caught it:\n{chapter.stdout[-2000:]}"


def test_copy_without_a_fault_passes(tree):
    """The control: the copy itself is sound, and it is the copy that is imported."""
    where = subprocess.run(
        [sys.executable, "-c", "import rope; print(rope.__file__)"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(tree)
    units = sorted({f"tests/test_{fault.unit}.py" for fault in FAULTS})
    chapters = sorted({f"chapters/{fault.chapter}.ipynb" for fault in FAULTS})
    assert run(tree, *units).returncode == 0
    assert run(tree, "--nbval", "--nbval-current-env", *chapters).returncode == 0
