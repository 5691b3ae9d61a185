"""The command line has every verb that HTTP has: the two lists are compared."""

from __future__ import annotations

import typer

from headway.api.app import build as build_api
from headway.cli.tree import build

# The operations by the command that does the same. A list or a page of a thing is often a part of its `show`.
COMMANDS = {
    "apply_apply": "apply",
    "audit_ls": "events ls",
    "webhooks_show_delivery": "webhooks tries",
    "webhooks_replay": "webhooks replay",
    "direct_call": "call",
    "groups_ls": "groups ls",
    "groups_create": "groups create",
    "groups_show": "groups show",
    "groups_cancel": "groups cancel",
    "history_group_events": "groups show",
    "groups_retry": "groups retry",
    "runs_ls": "runs ls",
    "runs_show": "runs show",
    "runs_retry": "runs retry",
    "templates_ls": "templates ls",
    "templates_create": "templates create",
    "templates_archive": "templates archive",
    "templates_show": "templates show",
    "templates_edit": "templates edit",
    "history_template_events": "templates show",
    "jobs_ls": "jobs ls",
    "jobs_create": "run",
    "jobs_batch": "jobs batch",
    "jobs_act_on_many": "jobs cancel",
    "jobs_show": "jobs show",
    "jobs_edit": "jobs edit",
    "files_ls": "jobs artifacts",
    "files_download": "jobs artifacts",
    "jobs_cancel": "jobs cancel",
    "jobs_chain": "jobs chain",
    "webhooks_of_job": "webhooks deliveries",
    "jobs_events": "jobs show",
    "jobs_explain": "jobs explain",
    "jobs_interrupt": "jobs interrupt",
    "live_follow_job": "jobs logs",
    "system_logs": "jobs logs",
    "jobs_move": "jobs move",
    "jobs_release": "jobs release",
    "jobs_resolve": "jobs resolve",
    "jobs_resume": "jobs resume",
    "jobs_retry": "jobs retry",
    "queue_show_limits": "limits ls",
    "queue_set_limits": "limits set",
    "system_overview": "status",
    "queue_ls": "queue ls",
    "queue_pause": "queue pause",
    "queue_reorder": "queue reorder",
    "queue_resume": "queue resume",
    "reservations_ls": "reservations ls",
    "reservations_create": "hold",
    "reservations_release": "reservations release",
    "reservations_show": "reservations show",
    "reservations_renew": "hold",
    "executions_ls": "executions ls",
    "executions_show": "executions show",
    "executions_cancel": "executions cancel",
    "history_execution_events": "executions show",
    "executions_retry": "executions retry",
    "schedules_ls": "schedules ls",
    "schedules_create": "schedules create",
    "schedules_delete": "schedules delete",
    "schedules_show": "schedules show",
    "schedules_edit": "schedules edit",
    "schedules_replace": "apply",
    "schedules_backfill": "schedules backfill",
    "schedules_disable": "schedules disable",
    "schedules_enable": "schedules enable",
    "history_schedule_events": "schedules show",
    "schedules_preview": "schedules next",
    "schedules_reset": "schedules reset",
    "schedules_seen": "schedules seen",
    "schedules_run": "schedules run",
    "schedules_ticks": "schedules ticks",
    "system_stats": "stats",
    "targets_ls": "targets ls",
    "targets_show": "targets show",
    "history_target_events": "targets show",
    "targets_ls_jobs": "jobs ls",
    "targets_create": "run",
    "targets_cancel": "jobs cancel",
    "targets_interrupt": "jobs interrupt",
    "targets_release": "jobs release",
    "targets_resolve": "jobs resolve",
    "targets_resume_job": "jobs resume",
    "targets_retry": "jobs retry",
    "targets_pause": "targets pause",
    "targets_release_holder": "targets release",
    "targets_resume": "targets resume",
    "system_tasks": "tasks ls",
    "tenants_ls": "tenants ls",
    "tenants_create": "tenants create",
    "tenants_show": "tenants show",
    "tenants_edit": "tenants set",
    "tenants_activate": "tenants activate",
    "tenants_deactivate": "tenants deactivate",
    "tokens_ls": "tokens ls",
    "tokens_create": "tokens create",
    "tokens_revoke": "tokens revoke",
    "tokens_show": "tokens show",
    "tokens_events": "events ls",
    "webhooks_ls": "webhooks ls",
    "webhooks_create": "webhooks create",
    "webhooks_secret": "webhooks secret",
    "webhooks_rotate_secret": "webhooks secret",
    "webhooks_delete": "webhooks delete",
    "webhooks_show": "webhooks show",
    "webhooks_edit": "webhooks edit",
    "webhooks_of_webhook": "webhooks deliveries",
    "history_webhook_events": "webhooks show",
    "webhooks_rotate": "webhooks rotate",
    "webhooks_send_test": "webhooks test",
    "system_workers": "workers ls",
}
# What a command line has no use for.
HTTP_ALONE = {
    "live_events": "a stream for programs; `top` and `jobs logs -f` follow what happens",
    "health_healthz": "a probe of the process that answers it",
    "health_readyz": "a probe; `doctor --server` asks it",
    "health_metrics": "for Prometheus",
    "health_openapi": "describes the addresses themselves",
}


def commands() -> set[str]:
    found = set()
    for name, command in build().commands.items():
        found |= (
            {f"{name} {verb}" for verb in command.commands} if isinstance(command, typer.core.TyperGroup) else {name}
        )
    return found


def operations() -> set[str]:
    document = build_api().openapi()
    return {
        operation["operationId"]
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if path.startswith("/api/") or not operation.get("deprecated")
    }


def test_every_operation_has_its_command() -> None:
    """A new operation of the API gets a command here, or the reason why it has none."""
    assert operations() == {*COMMANDS, *HTTP_ALONE}


def test_every_command_of_the_list_exists() -> None:
    assert sorted(set(COMMANDS.values()) - commands()) == []


def test_every_reason_is_given() -> None:
    assert all(HTTP_ALONE.values())
    assert not COMMANDS.keys() & HTTP_ALONE.keys()
