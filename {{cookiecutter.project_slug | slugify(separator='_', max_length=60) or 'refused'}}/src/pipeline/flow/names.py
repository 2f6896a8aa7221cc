"""Names of Java that Python asks for once: its classes, their packages, and what they offer.

Guarantee: a name means the same for as long as Java runs, so nothing is described otherwise than by asking each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def keep_names(spark: SparkSession) -> None:
    """Keep what was asked for.

    Each column that a user's function describes takes three questions, for a class, its function, and the column; Java
    looks for the first one in every package that might have it. In a small batch that was most of the driver's time.
    """
    spark.sparkContext._jvm.__class__ = _View  # noqa: SLF001  py4j makes it, and nobody else


class _Keeping:
    """Keeps a name where Python looks before it asks.

    A value of Java's may change, and a class that is not there yet looks like a package: neither is kept.
    """

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)  # type: ignore[misc]  # of the class of py4j behind it
        if type(found) in _KINDS:
            found.__class__ = _KINDS[type(found)]
        if isinstance(found, JavaClass | JavaMember) or (isinstance(found, JavaPackage) and name.islower()):
            self.__dict__[name] = found
        return found


class _View(_Keeping, JVMView):  # type: ignore[misc]
    pass


class _Package(_Keeping, JavaPackage):  # type: ignore[misc]
    pass


class _Class(_Keeping, JavaClass):  # type: ignore[misc]
    pass


_KINDS = {JavaPackage: _Package, JavaClass: _Class}
