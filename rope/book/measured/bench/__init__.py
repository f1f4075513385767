"""Time this package's rotation, the baselines, and a plain copy for comparison.

`python -m rope.book.measured.bench --help` lists the suites. Results are checked before anything is
timed. A rotation reads and writes each element once, as a copy does. A rotation's time, divided
by the time to copy the same tensors, thus shows how far the rotation is from the minimum time.
"""
