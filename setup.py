"""Build the loop in C; the package installs without it if there is no working compiler."""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

# Without fused multiply-adds and fast arithmetic, the loop gives the formula's bits.
FLAGS = ["-std=c11", "-O3", "-fno-fast-math", "-ffp-contract=off", "-fno-math-errno"]
# Try threads and vectors, then only vectors (Apple's clang), then neither.
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
        # ctypes loads this library. It uses nothing of Python's, so it works with every version.
        Extension(
            "rope.kernels.rotate", ["rope/kernels/rotate.c"], optional=True, py_limited_api=True
        )
    ],
)
