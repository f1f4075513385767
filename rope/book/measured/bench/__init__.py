"""Time this package's rotation and the baselines, next to a plain copy.

`python -m rope.book.measured.bench --help` lists its suites; results are checked before they are
timed. A rotation reads and writes each element once, as a copy does. So the time over that of a
copy of the same tensors, in the same run, tells you how far code is from the least possible.
"""
