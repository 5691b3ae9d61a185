"""The built-in tasks: command, http, powershell, sql."""

from headway.tasks.command import command
from headway.tasks.http import http
from headway.tasks.powershell import powershell
from headway.tasks.sql import sql

BUILT_IN = (command, http, powershell, sql)
