"""Cycles in a graph whose edges have kinds."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum


class Edge(StrEnum):
    """Dependencies of one transaction on another one."""

    WW = "ww"
    """It wrote the next version."""
    WR = "wr"
    """It read the version."""
    RW = "rw"
    """It wrote the version behind the one that was read: an anti-dependency."""


Graph = Mapping[int, Mapping[int, Collection[Edge]]]


def without(graph: Graph, *kinds: Edge) -> Graph:
    """Return the graph without edges of some kinds."""
    found: defaultdict[int, dict[int, Collection[Edge]]] = defaultdict(dict)
    for node, edges in graph.items():
        for other, labels in edges.items():
            if left := [label for label in labels if label not in kinds]:
                found[node][other] = left
    return found


def components(graph: Graph) -> Iterator[frozenset[int]]:
    """Return the strongly connected components of more than one node: Tarjan's, without recursion."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(_next(graph, root)))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    path.append(other)
                    on_path.add(other)
                    work.append((other, iter(_next(graph, other))))
                    break
                if other in on_path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    place = path.index(node)
                    found = frozenset(path[place:])
                    del path[place:]
                    on_path -= found
                    if len(found) > 1:
                        yield found


def way(graph: Graph, start: int, end: int, within: Collection[int]) -> Sequence[int] | None:
    """Return a shortest way from a node to another one; None: there is none."""
    came: dict[int, int] = {start: start}
    left = deque([start])
    while left:
        node = left.popleft()
        if node == end:
            steps = [node]
            while node != start:
                node = came[node]
                steps.append(node)
            return steps[::-1]
        for other in _next(graph, node):
            if other in within and other not in came:
                came[other] = node
                left.append(other)
    return None


def cycle(graph: Graph, within: frozenset[int]) -> Sequence[int]:
    """Return a cycle through some node of a component; its first node is its last too."""
    node = min(within)
    for other in _next(graph, node):
        if other in within and (back := way(graph, other, node, within)) is not None:
            return [node, *back]
    raise ValueError(f"{sorted(within)} is no component")


def _next(graph: Graph, node: int) -> Collection[int]:
    return graph.get(node, {}).keys()
