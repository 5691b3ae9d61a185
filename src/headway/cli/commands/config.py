"""Prints and checks the settings: `config show`, `config check`."""

from __future__ import annotations

from headway.cli.command import Invocation, command, family

config = family("Show and check the settings.")


@command(config, "show")
def show(call: Invocation) -> None:
    """Print every setting with its value, its source and its meaning."""
    from headway.cli.output import paragraph, styled, table
    from headway.config import explain

    explained = explain(call.settings())
    made = table("SETTING", "VALUE", "FROM", "MEANING", flexible=("VALUE", "FROM", "MEANING"))
    for setting in explained:
        style = "" if setting.source == "default" else "bold"
        name, value = styled(setting.name, style), styled(setting.value, style)
        made.add_row(name, value, styled(setting.source), paragraph(setting.description))
    call.out.answer({"items": [setting._asdict() for setting in explained], "next": None}, lambda: [made])


@command(config, "check")
def check(call: Invocation) -> None:
    """Check the settings only. All problems are listed together."""
    from headway.config import explain
    from headway.model.queue import policies

    settings = call.settings()
    policies.find(settings.concurrency.policy).lanes("command", ())
    given = [setting for setting in explain(settings) if setting.source != "default"]
    outcome = f"the settings are valid: {len(given)} given, the others have their defaults"
    call.out.answer({"ok": True, "given": [setting._asdict() for setting in given]}, lambda: [outcome])
