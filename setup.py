"""Builds the loop in C; without a compiler, or where it fails, the package installs without it."""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

# No fused multiply-adds and no fast arithmetic, so that the bits are those of the formula.
FLAGS = ["-std=c11", "-O3", "-fno-fast-math", "-ffp-contract=off", "-fno-math-errno"]
# With threads, or with vectors alone (Apple's clang), or as the compiler comes.
OPENMP = ["-fopenmp"], ["-fopenmp-simd"], []


class BuildLoop(build_ext):
    def build_extension(self, ext: Extension) -> None:
        for more in OPENMP:
            ext.extra_compile_args = ext.extra_link_args = [*FLAGS, *more]
            try:
                return super().build_extension(ext)
            except (CompileError, LinkError) as error:
                failed = error
        raise failed


setup(
    cmdclass={"build_ext": BuildLoop},
    ext_modules=[
        # A library for ctypes: nothing in it is Python's, so one serves every version of it.
        Extension(
            "rope.kernels.rotate", ["rope/kernels/rotate.c"], optional=True, py_limited_api=True
        )
    ],
)
