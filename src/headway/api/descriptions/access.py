"""Fields of tokens, tenants and actors."""

from __future__ import annotations

from headway.api.descriptions.field import Fields
from headway.api.descriptions.shared import AT

_TOKEN: Fields = {
    "token_id": ("The number of the token.", 6),
    "name": ("The name of the token, for people.", "ci"),
    "role": ("What the token may do: `viewer`, `operator` or `admin`.", "operator"),
    "tenant": ("The tenant of the token; null for a system token.", "default"),
    "hint": ("The last characters of the token, to tell tokens apart.", "x7Qk"),
    "state": ("`live`, `expired` or `revoked`.", "live"),
    "expires_at": ("When the token expires; null means never.", AT),
    "revoked_at": ("When the token was revoked; null if it was not.", None),
    "token": ("The text of the token. It is shown in this answer only.", "hw_…"),
}
_TENANT: Fields = {
    "tenant_id": ("The number of the tenant.", 2),
    "name": ("The name of the tenant.", "press"),
    "active": ("Whether jobs of the tenant start.", True),
    "max_queued": ("The largest number of waiting jobs; null means no limit.", 1000),
    "max_running": ("The largest number of running jobs; null means no limit.", 2),
    "max_schedules": ("The largest number of schedules; null means no limit.", 20),
    "allow": (
        "The admin kinds that the tenant's own admins may give: `command`, `powershell`, `sql`, `policy`.",
        ["sql"],
    ),
    "default_allow": ("The admin kinds that the tenant `default` keeps when its first neighbour is made.", ["command"]),
    "paused_at": ("Since when the queue of the tenant is paused; null if it is not.", None),
    "paused_until": ("When that pause ends by itself; null if it does not.", None),
}

ACCESS: dict[str, Fields] = {
    "Actor": {
        "type": ("`user`, `token`, `schedule`, `worker` or `system`.", "token"),
        "id": ("Identifies the actor among those of its type.", "6"),
        "name": ("The name of the actor.", "ci"),
    },
    "Token": _TOKEN,
    "NewToken-Output": _TOKEN,
    "NewToken-Input": {
        **_TOKEN,
        "tenant": ("The tenant of the token: left out, the caller's; null for a system token.", "press"),
        "expires": ("When the token expires: an instant, a duration from now, or null for never.", "90d"),
    },
    "Tenant": _TENANT,
    "NewTenant": _TENANT,
    "TenantEdit": _TENANT,
}
