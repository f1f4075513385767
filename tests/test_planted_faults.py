"""Do the tests bite? With a fault planted in the package, a unit test and a chapter must fail.

A test suite that has never been seen failing proves little. The faults are mistakes that people
make with rotary embeddings, and ones that this code could hold, one at a time, as a patch of a line
or two.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from patches import edits

ROOT = Path(__file__).parents[1]

# A name, the unit tests and the chapter that catch it; then by file what stands there once (-) and
# what is put in its place (+).
PATCHES = r"""
sine with the other sign: rotation, two_layouts
rope/kernels/operator.py
-    if not (by_operator and xs[0].is_cuda):
+    sin = -sin
+    if not (by_operator and xs[0].is_cuda):

m + n in place of n - m: embedding, rotary_attention
rope/module.py
-            q, k = self._rotate((q, k), *arguments)
+            back = position_ids, offset, seq_len, not inverse, inplace
+            q, k = self._rotate((q,), *arguments)[0], self._rotate((k,), *back)[0]

layouts swapped: rotation, from_maths_to_pytorch
rope/kernels/operator.py
-    by_operator = operator_takes(xs, cos, sin)
+    by_operator, interleaved = operator_takes(xs, cos, sin), not interleaved

frequencies off by one: frequencies, many_dimensions
rope/frequencies.py
-torch.arange(dim // 2, dtype
+torch.arange(1, dim // 2 + 1, dtype

last pair left out: rotation, many_dimensions
rope/kernels/operator.py
-    if not (by_operator and xs[0].is_cuda):
+    cos = torch.cat((cos[..., :-1], torch.ones_like(cos[..., -1:])), dim=-1)
+    sin = torch.cat((sin[..., :-1], torch.zeros_like(sin[..., -1:])), dim=-1)
+    if not (by_operator and xs[0].is_cuda):

query rotated but not the key: embedding, rotary_attention
rope/module.py
-            q, k = self._rotate((q, k), *arguments)
+            q = self._rotate((q, k), *arguments)[0]

degrees for radians: frequencies, rotation_in_two_dimensions
rope/frequencies.py
-.unsqueeze(-1) * inv_freq  #
+.unsqueeze(-1) * torch.rad2deg(inv_freq)  #

table rounded to bfloat16: frequencies, properties
rope/frequencies.py
-return cos.to(dtype), sin.to(dtype)
+return cos.bfloat16().to(dtype), sin.bfloat16().to(dtype)

angles in float32: frequencies, from_maths_to_pytorch
rope/frequencies.py
-positions.to(torch.float64).unsqueeze(-1) * inv_freq
+positions.float().unsqueeze(-1) * inv_freq.float()

decoding offset forgotten: attention, rotary_attention
rope/attention/decoding.py
-offset = past if position_ids is None else 0
+offset = 0

several tokens on a cache see each other's future: attention, rotary_attention
rope/attention/slots.py
- and seq_len in (1, used):
+:

beside keys stored plain, queries count from 0 in every call: cache, keys_that_move
rope/attention/decoding.py
-        q = rotary.rotate(q, at, offset=offset, seq_len=seq_len)
+        q = rotary.rotate(q, at, seq_len=seq_len)

a window one position too wide: cache, rotary_attention
rope/attention/sight.py
-(m - n < window)
+(m - n <= window)

a window forgotten without a cache: cache, rotary_attention
rope/attention/decoding.py
-        window=window,
-        sinks=layer.sinks,
+        sinks=layer.sinks,

tables cast with the model: embedding, precision
rope/following.py
-        if device != self._kept[0].device:
-            self._kept = self._moved(device, self._kept)
+        self._kept = tuple(map(fn, self._kept))

context extension dropped in silence: embedding, longer_context
rope/frequencies.py
-    if extension is None:
+    if True:

attention factor ignored: frequencies, longer_context
rope/frequencies.py
-    if scale != 1:
+    if False:

fast and slow planes exchanged: extensions, longer_context
rope/extensions/yarn.py
-inv_freq * (1 - ramp) + inv_freq / self.factor * ramp
+inv_freq * ramp + inv_freq / self.factor * (1 - ramp)

p-RoPE's planes rounded up: extensions, longer_context
rope/extensions/bands.py
-turning = int(self.partial_rotary_factor * len(inv_freq))
+turning = math.ceil(self.partial_rotary_factor * len(inv_freq))

second axis turned the other way: axes, more_than_one_axis
rope/axes/tables.py
-angle = angle + rows[axis]
+angle = angle - rows[axis]

starting frames of mixed frequencies exchanged: axes_layers, more_than_one_axis
rope/axes/mixed.py
-frame.repeat_interleave(self.dim // (2 * self.axes), dim=-1)
+frame.repeat(1, 1, self.dim // (2 * self.axes))

xPos rotating the key with the query's factor: xpos, why_rotation
rope/xpos.py
-        return rotated, self._rotate(k, cos, sin, stretch.reciprocal(), inverse)
+        return rotated, self._rotate(k, cos, sin, stretch, inverse)

xPos rotating a key by itself with the query's factor: xpos, why_rotation
rope/xpos.py
-        cos, sin, stretch = self._tables(k, position_ids, offset, k.dtype)
-        return self._rotate(k, cos, sin, stretch.reciprocal(), inverse)
+        cos, sin, stretch = self._tables(k, position_ids, offset, k.dtype)
+        return self._rotate(k, cos, sin, stretch, inverse)

left-padded positions not clamped: positions, rotary_attention
rope/positions.py
-    return (mask.cumsum(dim=1) - 1).clamp(min=0)
+    return mask.cumsum(dim=1) - 1

padding on the right stands where the last token does: cache, rotary_attention
rope/attention/slots.py
-.expand(real.shape).masked_fill(~real, -1)
+.expand(real.shape)

the formula turns the other way: kernels, on_the_gpu
rope/kernels/formula.py
-first * cos - second * sin, second * cos + first * sin
+first * cos + second * sin, second * cos - first * sin

the loop in C turns the other way: kernels, on_the_gpu
rope/kernels/rotate.c
-out[FIRST] = to_##DTYPE(a * cos[j] - b
+out[FIRST] = to_##DTYPE(a * cos[j] + b

the loop in C copies half of what is not rotated: kernels, on_the_gpu
rope/kernels/rotate.c
-memcpy(to + width, from + width, rest)
+memcpy(to + width, from + width, rest / 2)

each block of the formula begins at the tables' first row: kernels, on_the_gpu
rope/kernels/cpu.py
-t[..., block, :] for t in
+t[..., : x[:, :, block].shape[2], :] for t in

the Triton kernel turns the other way: kernels, on_the_gpu
rope/kernels/triton.py
-rotated_x = x * cos - y * sin
+rotated_x = x * cos + y * sin
-rotated_y = y * cos + x * sin
+rotated_y = y * cos - x * sin

the second tile of key heads starts at another head: kernels, on_the_gpu
rope/kernels/triton.py
-first_head = (head_tile - q_tiles) * HEADS
+first_head = (head_tile - q_tiles) * (HEADS + 1)

the Triton kernel leaves out what is not rotated on the way back: kernels, on_the_gpu
rope/kernels/triton.py
-        if REST > 0:
+        if REST > 0 and not INVERSE:

autograd does not learn of a rotation in place: autograd, on_the_gpu
rope/kernels/operator.py
-            torch.autograd.graph.increment_version(x)
+            pass

checkpoint converted the wrong way round: layouts, two_layouts
rope/layouts.py
-weight[interleaved_to_half(_row_numbers
+weight[half_to_interleaved(_row_numbers

the definition itself transposed: reference, many_dimensions
rope/reference.py
-matrix[even, even + 1] = -np.sin(angle)
+matrix[even, even + 1] = np.sin(angle)
-matrix[even + 1, even] = np.sin(angle)
+matrix[even + 1, even] = -np.sin(angle)

the symbolic rotation transposed: symbolic, eulers_formula
rope/symbolic.py
-sp.Matrix([[cos, -sin], [sin, cos]])
+sp.Matrix([[cos, sin], [-sin, cos]])

whole turns are not taken off an angle: diagnose, is_my_rope_right
rope/diagnose/planes.py
-    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
+    return angle

a base rounded as far as float32 might leave it: diagnose, is_my_rope_right
rope/diagnose/spectrum.py
-    for share in (2.0**-28, 2.0**-4, 2.0**-2, 1.0):
+    for share in (1.0,):

the decoder's keys left where they are: training_positions, what_the_model_uses
rope/book/training/decoder.py
-        if places.key is not None:
+        if False:

the decoder sees the character that it is asked for: training, training
rope/book/training/data.py
-return text[at], text[at + 1]
+return text[at + 1], text[at + 1]

a device counts its own tokens: parallel, across_devices
rope/parallel/shards.py
-return self.at[self._of(device)]
+return torch.arange(len(self.tokens[device]))

round robin deals from the last device on: parallel, across_devices
rope/parallel/shards.py
-tokens[i::devices] for i
+tokens[devices - 1 - i :: devices] for i

the tail of another device: parallel, across_devices
rope/parallel/shards.py
-parts[-1 - i]
+parts[devices + i]

documents see each other: parallel, across_devices
rope/parallel/shards.py
-        if self.segments is not None:
+        if False:

the ring takes a block for the one before it: parallel, across_devices
rope/parallel/ring.py
-shards.tokens[here], shards.tokens[here - step]
+shards.tokens[here], shards.tokens[(here - step + 1) % len(shards)]

gradients of keys come home one device too far: parallel, across_devices
rope/parallel/ring.py
-            if len(shards) > 1:
+            if False:

gradients of keys and values rounded before they are sent on: parallel, across_devices
rope/parallel/ring.py
-(*block, k_grad, v_grad), step
+(*block, k_grad.to(k.dtype), v_grad.to(v.dtype)), step

heads come back in the devices' order: parallel, across_devices
rope/parallel/attention.py
-.permute(1, 2, 0, 3).index_select(2, back)
+.permute(1, 2, 0, 3)

key heads copied all in turn, not each beside its copy: parallel, across_devices
rope/parallel/attention.py
-(x.repeat_interleave(repeats, dim=1) for
+(x.repeat(1, repeats, 1, 1) for

a DTensor's part takes the first rows of the tables: parallel, across_devices
rope/kernels/dtensors.py
-at = x.device_mesh.get_local_rank(number)
+at = 0

a DTensor's part takes the place on the mesh's first axis: parallel, across_devices
rope/kernels/dtensors.py
-get_local_rank(number)
+get_local_rank(0)

position ids of each row not cut with the rows: parallel, across_devices
rope/kernels/dtensors.py
-if position_ids.dim() == 1 else (0, 2), x)
+if position_ids.dim() == 1 else (1, 2), x)

tables of each head not cut with the heads: parallel, across_devices
rope/kernels/dtensors.py
-else (0, 1, 2, 3)
+else (0, 3, 2, 3)

a DTensor that is to be rotated back rotated on: parallel, across_devices
rope/kernels/operator.py
-partial(apply_rotation, interleaved=interleaved, inverse=inverse)
+partial(apply_rotation, interleaved=interleaved, inverse=False)

keys moved the other way: shift, keys_that_move
rope/module.py
-        sin = sin * delta[:, None, :, None].sign()
+        sin = -sin * delta[:, None, :, None].sign()

moved keys multiplied by the attention factor again: shift, keys_that_move
rope/module.py
-        if self.attention_scaling != 1:
+        if False:

a second move before a read forgets the first: cache, keys_that_move
rope/attention/slots.py
-self.moved = changed if self.moved is None else self.moved | changed
+self.moved = changed

only keys moved in all rows are rotated: cache, keys_that_move
rope/attention/cache.py
-(tokens.moved & (tokens.positions >= 0)).any(dim=0)
+(tokens.moved & (tokens.positions >= 0)).all(dim=0)

a beam reordered without the keys that are read: cache, keys_that_move
rope/attention/cache.py
-                self._turned = self._turned.index_select(0, rows)
+                self._turned = self._turned[: len(rows)]

keys that come after a move are not among those read: cache, keys_that_move
rope/attention/cache.py
-            put(self._turned, places, turned)
+            self._turned = self._turned.clone()

a fork that shares the memory of its cache: cache, keys_that_move
rope/attention/cache.py
-            return copy.deepcopy(self)
+            return copy.copy(self)

the rounding to the format left out of the bound: moving, keys_that_move
rope/book/measured/accuracy/moving.py
-    storage = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
+    storage = 0.0

one sink too many: cache, keys_that_move
rope/attention/sight.py
-| (n < sinks))
+| (n <= sinks))

a full window gives up a key that is still seen: cache, keys_that_move
rope/attention/slots.py
-(at > self._next() - window) |
+(at > self._next() - window + 1) |

an older checkpoint's frequencies never compared: embedding, using_rope
rope/tables.py
-            if not (stored.is_meta or self._agrees(stored)):
+            if False:

a row's later tokens all at its start: offsets, using_rope
rope/positions.py
-offset[:, None] + torch.arange(x.shape[2], device=x.device)
+offset[:, None].expand(-1, x.shape[2])

an adapter's compiled tables without the attention factor: adapters, using_rope
rope/adapters/parts.py
-dtype=table_dtype(x), scale=scale)
+dtype=table_dtype(x))

float32 tables for a model in float64: adapters, using_rope
rope/adapters/parts.py
-rotary.tables_at(at, dtype=x.dtype)
+rotary.tables_at(at)

every layer type with the first one's frequencies: adapters, using_rope
rope/adapters/parts.py
-else str(layer_type)
+else next(iter(self.layers))

GPT-J's own table not given back: adapters, using_rope
rope/adapters/transformers.py
-part.embed_positions = part.__dict__.pop("replaced")
+part.__dict__.pop("replaced")

scores of latent attention divided for the content alone: latent, keys_that_move
rope/attention/latent.py
-math.sqrt(self.nope_dim + self.rope_dim)
+math.sqrt(self.nope_dim)

a latent query rotated at its other end: latent, keys_that_move
rope/attention/latent.py
-        q = q.roll(self.rope_dim, dims=-1)  #
+        #

what is read of rotated values not rotated back: compressed, rotated_values
rope/attention/compressed.py
-        out = self._turned(weights @ kv, ids, inverse=True).transpose(1, 2)
+        out = (weights @ kv).transpose(1, 2)

an entry at the last of its tokens: compressed, rotated_values
rope/attention/compressed.py
-        return self._turned(c(whole)[:, None, -len(at) :], at)
+        return self._turned(c(whole)[:, None, -len(at) :], at + c.ratio - 1)

an entry is read before its group has ended: compressed, rotated_values
rope/attention/compressed.py
-        read = (ends <= ids[:, None] + 1).expand(len(x), -1, -1)  # [B, S, T]: all in the past
+        read = (ends <= ids[:, None] + 2).expand(len(x), -1, -1)  # [B, S, T]: all in the past

an extension that is set and not used: training_record, beyond_the_trained_length
rope/book/training/positions.py
-            extension=self.extension,
+            extension=None,
"""


@dataclass
class Fault:
    name: str
    unit: str
    chapter: str
    file: str
    edits: list[tuple[str, str]]


def read(patch):
    title, file, *lines = patch.splitlines()
    name, _, catchers = title.rpartition(": ")
    return Fault(name, *catchers.split(", "), file, edits(lines))


FAULTS = [read(patch) for patch in PATCHES.strip().split("\n\n")]


def run(tree: Path, *command: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("PYTEST_ADDOPTS", "CI", "SLOW"):  # the quick tests must find it
        environment.pop(name, None)
    command = [sys.executable, *command]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


def run_tests(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    return run(tree, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments)


@pytest.fixture
def tree(tmp_path):
    for folder in ("rope", "tests", "chapters"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    return tmp_path


def planted(fault: Fault) -> str:
    """The file with the fault in it."""
    source = (ROOT / fault.file).read_text(encoding="utf-8")
    for right, wrong in fault.edits:
        assert source.count(right) == 1, f"{fault.file} no longer holds {right!r} once"
        source = source.replace(right, wrong)
    return source


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_can_be_planted(fault):
    """So that a line which moves takes its fault along, long before the slow tests run."""
    planted(fault)
    assert (ROOT / f"tests/test_{fault.unit}.py").exists()
    assert (ROOT / f"chapters/{fault.chapter}.ipynb").exists()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught_twice(fault, tree):
    path = tree / fault.file
    path.write_text(planted(fault), encoding="utf-8")
    if path.suffix == ".c":
        if not list(tree.glob("rope/kernels/*.so")):
            pytest.skip("the loop in C was not built here")
        run(tree, "setup.py", "-q", "build_ext", "--inplace", "--force").check_returncode()

    unit = run_tests(tree, "--hypothesis-profile", "planted", f"tests/test_{fault.unit}.py")
    assert unit.returncode == 1, f"no unit test caught it:\n{unit.stdout[-2000:]}"
    chapter = run_tests(tree, "--nbval", "--nbval-current-env", f"chapters/{fault.chapter}.ipynb")
    assert chapter.returncode == 1, f"no cell caught it:\n{chapter.stdout[-2000:]}"


@pytest.mark.slow
def test_copy_without_a_fault_passes(tree):
    """The control: the copy itself is sound, and it is the copy that is imported."""
    where = run(tree, "-c", "import rope; print(rope.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(tree)
    assert run_tests(tree, "tests/test_rotation.py").returncode == 0
    chapter = "chapters/from_maths_to_pytorch.ipynb"
    assert run_tests(tree, "--nbval", "--nbval-current-env", chapter).returncode == 0
