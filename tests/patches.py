"""Faults to plant: what stands somewhere once (-), and what is put in its place (+)."""


def edits(lines: list[str]) -> list[tuple[str, str]]:
    """The replacements of a patch, each of so many - lines and the + lines after them."""
    found: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line[0] == "-" and (not found or found[-1][1]):
            found.append(([], []))
        found[-1][line[0] == "+"].append(line[1:])
    return [("\n".join(old), "\n".join(new)) for old, new in found]
