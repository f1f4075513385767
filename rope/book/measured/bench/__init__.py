"""The benchmark: this package's rotation and the baselines, next to a plain copy.

`python -m rope.book.measured.bench` runs its suites, checks before it times, and writes a record;
`--help` lists the options. A rotation reads each element once and writes it once, just as a copy
does. So the time over that of a copy of the same tensors, in the same run, tells you how far code
is from the least possible.
"""
