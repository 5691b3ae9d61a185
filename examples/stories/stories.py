"""Stories and research by a language model on this machine: an application on Headway. README.md says how to run it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from headway import App, Context, Fail, Retry

TOPIC = "lighthouses"
# The checkpoint keeps all chapters written so far, and is limited to 64 KiB.
MOST_WORDS = 5_000
TOKENS_PER_WORD = 2

app = App()


# --- the work -----------------------------------------------------------------------------------------------------


@app.task("research.run", resources=["ollama"], timeout="30m", direct="/research/run")
def run_research(ctx: Context, topic: str, model: str | None = None) -> dict[str, str]:
    """Collects notes on a topic."""
    notes, tokens = ask(ctx, model, f"Write ten short notes of fact about {topic}.", 200, "notes")
    ctx.spend(tokens=tokens)
    return {"topic": topic, "notes": notes}


@app.task("story.generate", resources=["ollama"], timeout="30m", direct="/story/generate")
def generate_story(
    ctx: Context,
    topic: str,
    chapters: int = 3,
    words: int = 300,
    research: dict[str, Any] | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """Writes a story in chapters of `words` words. A retry continues after the last finished chapter."""
    if not (chapters > 0 and words > 0 and chapters * words <= MOST_WORDS):
        raise Fail(f"chapters and words must be 1 or more, and a story has at most {MOST_WORDS} words")
    written: list[str] = ctx.last_checkpoint or []
    while len(written) < chapters:
        number = len(written) + 1
        ctx.log.info("chapter %d of %d", number, chapters)
        prompt = chapter_prompt(topic, number, chapters, words, written, research)
        chapter, tokens = ask(ctx, model, prompt, words, f"chapter {number} of {chapters}")
        written.append(chapter)
        ctx.checkpoint(written)
        ctx.spend(tokens=tokens)  # the budget may end the job here: the chapter is safe already
    text = "\n\n".join(f"## {number}\n\n{chapter}" for number, chapter in enumerate(written, 1))
    keep(ctx, f"# {topic.title()}\n\n{text}\n")
    return {"title": topic.title(), "chapters": written}


def chapter_prompt(
    topic: str, number: int, chapters: int, words: int, written: list[str], research: dict[str, Any] | None
) -> str:
    parts = [f"Write chapter {number} of {chapters} of a story about {topic}, in about {words} words."]
    if research is not None:
        parts.append(f"Be true to these notes:\n{research['notes']}")
    if written:
        parts.append(f"The chapter before was:\n{written[-1]}")
    return "\n\n".join(parts)


def keep(ctx: Context, text: str) -> None:
    if not ctx.job_id:  # a direct call gives its answer and keeps no files
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "story.md"
        file.write_text(text, "utf-8")
        ctx.attach(file)


# --- Ollama -------------------------------------------------------------------------------------------------------


def ask(ctx: Context, model: str | None, prompt: str, words: int, label: str) -> tuple[str, int]:
    """Returns the answer and its number of tokens. Each piece reports progress and is a stop point."""
    most, text = words * TOKENS_PER_WORD, ""
    for count, piece in enumerate(pieces(model or os.environ.get("OLLAMA_MODEL", "llama3.2"), prompt, most), 1):
        ctx.report(min(count, most), most, label)
        text += piece.get("response", "")
        if piece.get("done"):
            return text.strip(), piece.get("prompt_eval_count", 0) + piece.get("eval_count", 0)
    raise Retry("Ollama broke off in the middle of its answer")


def pieces(model: str, prompt: str, most: int) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects that `POST /api/generate` streams. Temporary errors are retried, others fail the job."""
    url = os.environ.get("OLLAMA_URL", "http://127.0.0.1:11434").rstrip("/")
    body = {"model": model, "prompt": prompt, "stream": True, "options": {"num_predict": most}}
    # The first word may take minutes, while the model is loaded.
    timeout = httpx.Timeout(10.0, read=float(os.environ.get("OLLAMA_TIMEOUT", "300")))
    try:
        with httpx.stream("POST", f"{url}/api/generate", json=body, timeout=timeout, trust_env=False) as answer:
            check(answer, model)
            for line in filter(None, answer.iter_lines()):
                piece = json.loads(line)
                if "error" in piece:
                    raise Retry(f"Ollama gave up: {piece['error']}")
                yield piece
    except httpx.TransportError as error:
        raise Retry(f"Ollama at {url} cannot be used: {type(error).__name__}: {error}") from error


def check(answer: httpx.Response, model: str) -> None:
    if answer.status_code == 200:
        return
    said = f"Ollama answered {answer.status_code}: {answer.read().decode('utf-8', 'replace')[:300]}"
    if answer.status_code == 404:
        raise Fail(f"{said}. Is the model there? Try `ollama pull {model}`")
    if answer.status_code < 500 and answer.status_code != 429:
        raise Fail(said)
    raise Retry(said)


# --- every night --------------------------------------------------------------------------------------------------

(
    app.plan("nightly story")
    .then(run_research.using(name="research").step(topic=TOPIC))
    .then(generate_story.using(name="story").step(topic=TOPIC, research={"$result": "research"}))
    .schedule("30 2 * * *", timezone="Europe/Berlin")
)
