"""Signs cookies, CSRF tokens and flash messages with the key of the installation. Pure.

Browsers share cookies between all ports of a host, so a server on another port reads and sets them. It does not have
the key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from headway.errors import Refused
from headway.model.access.permissions import DIGITS, looks_like_session

OPEN_PREFIX = "open_"
# Values of one cookie that are looked at. A page on another port can set it several times, for several paths.
MOST_VALUES = 4


@dataclass(frozen=True, slots=True)
class CookieKey:
    """The key of the installation; all its server processes share it."""

    secret: bytes = field(repr=False)

    def signature(self, purpose: str, *parts: str) -> str:
        """Returns a signature of the parts, which holds for this purpose only."""
        text = b"".join(b"%d:%s" % (len(part), part) for part in map(_encoded, (purpose, *parts)))
        digest = hmac.new(self.secret, text, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode()[:DIGITS]

    def signed(self, given: str, purpose: str, *parts: str) -> bool:
        return hmac.compare_digest(_encoded(given), self.signature(purpose, *parts).encode())

    # --- the cookie of a browser without a session ---

    def open_cookie(self, random: str) -> str:
        return f"{OPEN_PREFIX}{random}.{self.signature('open', random)}"

    def is_open_cookie(self, cookie: str) -> bool:
        random, _, given = cookie.removeprefix(OPEN_PREFIX).partition(".")
        return cookie.startswith(OPEN_PREFIX) and self.signed(given, "open", random)

    def usable(self, cookies: Sequence[str]) -> str | None:
        """Returns the first cookie that is a session or signed with this key; None if there is none.

        The session itself may have ended.
        """
        return next((text for text in cookies if looks_like_session(text) or self.is_open_cookie(text)), None)

    # --- the tenant that a browser chose ---

    def tenant_cookie(self, tenant: str) -> str:
        return f"{quote(tenant, safe='')}.{self.signature('tenant', tenant)}"

    def chosen_tenant(self, cookie: str) -> str | None:
        """Returns the tenant of a cookie; None if this installation did not sign it."""
        quoted, _, given = cookie.rpartition(".")
        tenant = unquote(quoted)
        return tenant if self.signed(given, "tenant", tenant) else None

    # --- CSRF tokens ---

    def csrf_of(self, cookie: str) -> str:
        """Returns the CSRF token that a write with this cookie must carry.

        Neither a page that set the cookie nor a server that was sent it can compute the token.
        """
        return self.signature("csrf", cookie)

    def is_csrf_of(self, given: str, cookie: str) -> bool:
        return self.signed(given, "csrf", cookie)

    def form_token(self, cookie: str, tenant: str) -> str:
        """Returns a form's token: the CSRF token of the cookie, and the tenant for which the page was shown."""
        return f"{self.csrf_of(cookie)}.{quote(tenant, safe='')}"

    def check_form(self, given: str, cookie: str | None, tenant: str | None) -> None:
        """Refuses a form with a wrong CSRF token, or one that was shown for another tenant.

        `tenant` is the tenant that the browser acts for now; another page may have changed it. None skips that check.
        """
        token, _, shown = given.partition(".")
        if cookie is None or not self.is_csrf_of(token, cookie):
            text = "this form has expired or comes from another site: nothing was changed; send it again"
            raise Refused(text, code="bad_csrf")
        if tenant is not None and unquote(shown) != tenant:
            text = f"you act for {tenant} now: nothing was changed; reload the page and try again"
            raise Refused(text, code="other_tenant")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
