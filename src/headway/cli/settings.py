"""The settings: `config show`, `config check`."""

from __future__ import annotations

from headway.cli.call import Call, command, family

config = family("Look at the settings, check them.")


@command(config, "show")
def show(call: Call) -> None:
    """Print every setting with its value, where it comes from and what it means."""
    from headway.cli.out import paragraph, styled, table
    from headway.config import explain

    found = explain(call.settings())
    if call.out.as_json:
        call.out.data({"items": [one._asdict() for one in found], "next": None})
        return
    made = table("SETTING", "VALUE", "FROM", "MEANING", flexible=("VALUE", "FROM", "MEANING"))
    for one in found:
        style = "" if one.source == "default" else "bold"
        made.add_row(styled(one.name, style), styled(one.value, style), styled(one.source), paragraph(one.description))
    call.out.show(made)


@command(config, "check")
def check(call: Call) -> None:
    """Check the settings, and nothing else. Every problem is told at once."""
    from headway.config import explain
    from headway.model import policies

    settings = call.settings()
    policies.find(settings.concurrency.policy).lanes("command", ())
    given = [one for one in explain(settings) if one.source != "default"]
    if call.out.as_json:
        call.out.data({"ok": True, "given": [one._asdict() for one in given]})
    else:
        call.out.show(f"the settings are fine: {len(given)} given, the others have their defaults")
