"""Time this package's rotation, the baselines, and a plain copy for comparison.

`python -m rope.book.measured.bench --help` lists the suites. Results are checked before anything is
timed. A rotation must read and write each element once, as a copy does. The ratio of its time to
the time of copying the same tensors therefore shows how far it is from the minimum.
"""
