"""The order in which lines printed by a kernel appear: block after block, and in a block the lines of a lane together.

Devices run lanes in different ways, one at a time or statement by statement, so lines are collected and then put into
this order. A line of the whole block stands between what lanes printed before and after it. Does not print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: The lane of a line that the block prints once.
WHOLE_BLOCK = -1

Line = tuple[int, int, str]  # block, lane, text


def in_order(lines: Iterable[Line]) -> Iterator[str]:
    """The texts of lines in the order in which they are shown; `lines` are in the order in which they were made."""
    together: list[Line] = []
    for line in lines:
        if together and (line[1] == WHOLE_BLOCK or line[0] != together[0][0]):
            yield from _by_lane(together)
            together = []
        if line[1] == WHOLE_BLOCK:
            yield line[2]
        else:
            together.append(line)
    yield from _by_lane(together)


def _by_lane(lines: list[Line]) -> Iterator[str]:
    return (text for _, _, text in sorted(lines, key=lambda line: line[1]))
