"""What Java says of each of many objects, by a few calls in all: one from Python takes a third of a millisecond.

Guarantee: the answers are those that each object gives when it is asked by itself, in their order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark import SparkContext

# Whatever kind of sequence it is, it is asked as one.
SEQUENCE = "scala.collection.Seq"


class Each:
    """Asks by methods, one after the other, all without arguments: of each what the last one returns."""

    def __init__(self, context: SparkContext, like: Any, steps: Sequence[str]) -> None:
        """`like` is an object of the kind that is going to be asked, at each step."""
        jvm: Any = context._jvm  # noqa: SLF001  Java's own reflection has no Python face
        nothing = context._gateway.new_array(jvm.java.lang.Class, 0)  # noqa: SLF001
        handles = jvm.java.lang.invoke.MethodHandles
        from_any = jvm.java.lang.invoke.MethodType.genericMethodType(1)
        sequence = jvm.java.lang.Class.forName(SEQUENCE)
        chain = None
        for number, step in enumerate(steps, start=1):
            kind = sequence if sequence.isInstance(like) else like.getClass()
            handle = handles.publicLookup().unreflect(kind.getMethod(step, nothing)).asType(from_any)
            chain = handle if chain is None else handles.filterReturnValue(chain, handle)
            if number < len(steps):
                like = getattr(like, step)()
        operator = jvm.java.lang.Class.forName("java.util.function.UnaryOperator")
        self._asked = jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(operator, chain)
        self._listed = jvm.java.util.ArrayList
        self._written = jvm.java.util.Arrays.deepToString

    def of(self, listed: Any) -> list[Any]:
        """The answers of all objects in a list of Java: numbers, or arrays of them."""
        found: list[Any] = json.loads(self.text(listed))
        return found

    def text(self, listed: Any) -> str:
        """The same, as Java writes it."""
        answers = self._listed(listed)
        answers.replaceAll(self._asked)
        return str(self._written(answers.toArray()))
