"""Agents that drive desks with a language model: an application on Headway. README.md says how to run it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx

from headway import App, Context, Fail, Retry

app = App()


@app.task("agent.run", timeout="1h", budget={"tokens": 50_000})
def run_agent(ctx: Context, goal: str, steps: int = 5) -> dict[str, Any]:
    """Asks the model for one action after the other. A resumed job continues after its last finished step."""
    done: list[str] = ctx.last_checkpoint or []
    while len(done) < steps:
        action, tokens = next_action(ctx, goal, steps, done)
        done.append(action)
        ctx.checkpoint(done)
        ctx.spend(tokens=tokens)  # the budget may end the job here: the step is safe already
    return {"goal": goal, "actions": done}


def next_action(ctx: Context, goal: str, steps: int, done: list[str]) -> tuple[str, int]:
    """Returns the action and its number of tokens. Each piece of the answer reports progress and is a stop point."""
    before = "\n".join(done) or "nothing yet"
    prompt = f"Your goal: {goal}. This is step {len(done) + 1} of {steps}. You did:\n{before}\nName the next action."
    text = ""
    for piece in pieces(prompt):
        ctx.report(len(done), steps, f"step {len(done) + 1} of {steps}")
        text += piece.get("response", "")
        if piece.get("done"):
            return text.strip(), piece.get("prompt_eval_count", 0) + piece.get("eval_count", 0)
    raise Retry("the model broke off in the middle of its answer")


def pieces(prompt: str) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects that Ollama streams."""
    url = os.environ.get("OLLAMA_URL", "http://127.0.0.1:11434").rstrip("/")
    body = {"model": os.environ.get("OLLAMA_MODEL", "llama3.2"), "prompt": prompt, "stream": True}
    try:
        with httpx.stream("POST", f"{url}/api/generate", json=body, timeout=300.0, trust_env=False) as answer:
            if answer.status_code != 200:
                said = f"Ollama answered {answer.status_code}: {answer.read().decode('utf-8', 'replace')[:300]}"
                raise Retry(said) if answer.status_code >= 500 else Fail(said)
            yield from map(json.loads, filter(None, answer.iter_lines()))
    except httpx.TransportError as error:
        raise Retry(f"Ollama at {url} cannot be used: {error}") from error
