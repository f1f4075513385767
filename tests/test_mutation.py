"""Check that every known fault can still be planted, so that edited lines keep their faults."""

from collections import Counter

import mutation
import pytest

FAULTS = mutation.faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.key)
def test_a_fault_can_be_planted(fault):
    fault.planted()
    assert fault.unit is None or (mutation.TESTS / f"test_{fault.unit}.py").exists()
    assert fault.chapter is None or (mutation.ROOT / f"chapters/{fault.chapter}.ipynb").exists()


def test_each_fault_has_a_name_of_its_own():
    assert [key for key, count in Counter(fault.key for fault in FAULTS).items() if count > 1] == []
