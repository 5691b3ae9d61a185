"""The base of the JSON classes of all nouns: base classes, types of fields, problems, pages and actors.

Each module beside this one holds a noun: the JSON that Headway gives out (`…Schema`) and the bodies that it accepts
(`…Body`). The OpenAPI document follows from both, and names each class without its suffix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from headway.model.jobs.job import Actor
from headway.model.values.times import instant_text

T = TypeVar("T")
V = TypeVar("V")
C = TypeVar("C", bound=type)
Json = dict[str, Any]
AnyJson = Any
_STRICT = ConfigDict(extra="forbid")

# --- types of fields in answers -----------------------------------------------------------------------------------

Instant = str
Duration = float | str
Counts = dict[str, int]
Status = Literal[
    "WAITING", "SCHEDULED", "QUEUED", "RUNNING", "PAUSED", "ERROR", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"
]
Outcome = Literal["COMPLETED", "FAILED", "SKIPPED"]
FailureName = Literal[
    "EXCEPTION", "EXIT_CODE", "TIMEOUT", "LOST", "INTERRUPTED", "BUDGET", "BAD_PARAMS", "UNKNOWN_TASK"
]
Mode = Literal["sequential", "parallel", "staged"]

# --- types of fields in bodies ------------------------------------------------------------------------------------

Id = Annotated[int, Field(strict=True, ge=1, le=(1 << 63) - 1)]
# Most characters of a time or a duration, and of a value to filter by.
MOST_TIME = 100
MOST_TEXT = 300
Name = Annotated[str, Field(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(max_length=200)]
# Kinds of events, and names of states, each also as several with commas.
Words = Annotated[list[Annotated[str, Field(max_length=MOST_TEXT)]], Field(max_length=50)]
FilterText = Annotated[str, Field(max_length=MOST_TEXT)]
Priority = Annotated[int, Field(strict=True, ge=0, le=100)]
Params = dict[str, Any]
GivenDuration = Annotated[
    float | Annotated[str, Field(max_length=MOST_TIME)],
    Field(description="Seconds, or a text like 10s, 5m, 2h", examples=["10m"]),
]
GivenInstant = Annotated[
    str, Field(max_length=MOST_TIME, description="RFC 3339, with a zone", examples=["2030-01-01T02:30:00Z"])
]
Budget = Annotated[dict[str, float], Field(examples=[{"tokens": 500_000}])]
Note = Annotated[str, Field(max_length=2_000)]
Switch = Annotated[bool, Field(strict=True)]


# --- bases --------------------------------------------------------------------------------------------------------


def _name_without(cls: type, suffix: str) -> None:
    """Gives a class the name that the OpenAPI document uses; the suffix only keeps it apart in the code."""
    cls.__name__ = cls.__qualname__ = cls.__name__.removesuffix(suffix) or suffix


class Body(BaseModel):
    # Values are checked where they are used. An input may be a secret, so pydantic's messages must not contain it.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        _name_without(cls, "Body")

    def given(self) -> dict[str, Any]:
        """Returns the given fields; null counts as not given."""
        return {name: value for name, value in self.model_dump(exclude_unset=True).items() if value is not None}


def strict(shape: C) -> C:
    """Decorates a TypedDict: no other fields, and its name in the OpenAPI document."""
    shape.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]
    _name_without(shape, "Schema")
    return shape


class _Value(Generic[V]):
    """The value of a field: a function of what the schema shows."""

    def __init__(self, read: Callable[[V], Any]) -> None:
        self.read = read


class Reader(Generic[V]):
    """Declares the values of a schema's fields: `name: type = reader(lambda view: …)`."""

    def __call__(self, read: Callable[[V], T]) -> T:
        return _Value(read)  # type: ignore[return-value]

    def literal(self, read: Callable[[V], object]) -> Any:
        """Declares a value of a wider type than its field: a `str` where the field has a `Literal`."""
        return _Value(read)


def given() -> Any:
    """Declares a field that keeps its place among the others, and whose value the caller of `of` gives."""
    return _Value(lambda shown: None)


class Schema(Generic[V]):
    """The JSON of a thing: the name, type and value of each field, written once.

    `of` builds a plain dict, so an instance never exists. A field without a value is given to `of` by its caller. The
    fields of a subclass stand before those of its base, and given fields last.
    """

    _values: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    _shape: ClassVar[Any] = None

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        own = {name: value.read for name, value in vars(cls).items() if isinstance(value, _Value)}
        cls._values = {**own, **cls._values}
        cls._shape = None
        _name_without(cls, "Schema")

    @classmethod
    def of(cls, shown: V, **given: Any) -> Any:
        """Returns the JSON of a thing: the values of its fields in their order, then the given ones."""
        made = {name: read(shown) for name, read in cls._values.items()}
        made.update(given)
        return made

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if cls._shape is None:
            hints = get_type_hints(cls, include_extras=True)
            fields = {name: hint for name, hint in hints.items() if not name.startswith("_")}
            shape: Any = TypedDict(cls.__name__, fields)  # type: ignore[misc]
            shape.__doc__, shape.__module__ = vars(cls).get("__doc__"), cls.__module__
            cls._shape = strict(shape)
        return handler.generate_schema(cls._shape)


# --- problems and pages -------------------------------------------------------------------------------------------


@strict
class FieldProblemSchema(TypedDict):
    field: str
    problem: str


class _Problem(TypedDict, total=False):
    state: str
    job_id: int
    failure_kind: FailureName


@strict
class ProblemSchema(_Problem):
    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblemSchema]


@strict
class PageSchema(TypedDict, Generic[T]):
    items: list[T]
    next: str | None


# --- values -------------------------------------------------------------------------------------------------------

_actor = Reader[Actor]()


class ActorSchema(Schema[Actor]):
    type: str = _actor(lambda actor: actor.type)
    id: str = _actor(lambda actor: actor.id)
    name: str = _actor(lambda actor: actor.name)


def actor_json(text: str) -> Any:
    return ActorSchema.of(Actor.parse(text))


def actor_or_none(text: str | None) -> Any:
    return None if text is None else actor_json(text)


def time_or_none(instant: int | None) -> str | None:
    return None if instant is None else instant_text(instant)
