"""Define the recorded runs that this package no longer trains.

The chapters "What training shows" and "Finding a token" use these runs. The records
`recorded/second.json` and `recorded/third.json` hold only what the chapters read. Commit f403233
contains the programs that trained and measured these runs.
"""

from dataclasses import replace

from rope.book.training.experiment import Experiment

LONGEST = Experiment(context=512, batch=4)
CODE = Experiment(task="code", batch=8, steps=3000, evaluate_every=100)
CODE_SHORT = replace(CODE, steps=300)  # a complete schedule in a tenth of the steps
RECALLED = Experiment(task="recall", layers=2, width=64, heads=2, steps=3000, evaluate_every=100)
LOOKUP = replace(RECALLED, task="lookup")
EVEN = replace(LOOKUP, task="even lookup")  # asks equally often at each distance
FAR = (31, 63, 95, 119, 127, 191, 255, 383, 511, 767, 1023, 1535, 2039)  # lookup distances
