"""Tenants as JSON, under the name by which the command line imports them."""

from headway.api.schemas.access import tenant_json as tenant_json
