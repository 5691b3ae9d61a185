"""Obedient tasks for the tests of child processes: each does the one thing its name says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    name: str
    function: Callable[..., object]


def task(function: Callable[..., object]) -> Task:
    return Task(function.__name__, function)


@task
def nothing():
    pass


@task
def echo(value):
    return value
