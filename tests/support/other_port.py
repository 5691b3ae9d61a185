"""What a server or page on another port of the host can do to Headway's cookies: read them, set them, forge them.

The forgeries use nothing but the cookies: the key of the installation is not known there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import httpx


def named(name: str, url: str, *, tls: bool = False) -> str:
    return f"{'__Host-' if tls else ''}headway_{name}_{httpx.URL(url).port}"


def guessed_csrf(cookie: str) -> str:
    """A CSRF token made of the cookie alone."""
    digest = hashlib.sha256(f"headway csrf {cookie}".encode()).digest()
    return base64.urlsafe_b64encode(digest).decode()[:43]


def forged_flash(cookie: str, text: str, path: str) -> str:
    """A message with a form, signed with the cookie alone."""
    plain = json.dumps([text, "done", [path, {}]])
    body = base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")
    signature = hmac.new(f"headway seal {cookie}".encode(), body.encode(), hashlib.sha256).hexdigest()
    return f"{body}.{signature}"
