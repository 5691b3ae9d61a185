"""Kinds of file systems, and what each means for a SQLite file. Pure."""

from __future__ import annotations

import re

# Hosts do not share locks and memory on these, and SQLite's write-ahead log needs both.
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "ncpfs"),
        *("beegfs", "coda", "davfs", "gfs2", "gpfs", "ocfs2", "orangefs", "pvfs2"),
    }
)
_IN_USER_SPACE = ("sshfs", "s3fs", "rclone", "gvfs", "ceph", "goofys", "gcsfuse", "smbnetfs", "curlftpfs")
DOUBTFUL = frozenset({"9p", "drvfs", "virtiofs", "vboxsf", "fuseblk"})
VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_ESCAPED = re.compile(r"\\([0-7]{3})")  # a blank is written \040


def is_network(kind: str) -> bool:
    """Returns True if other machines can open the same file, without its shared memory."""
    name = kind.removeprefix("fuse.")
    return name in NETWORK or name.startswith(_IN_USER_SPACE)


def mounted(table: str, path: str) -> str | None:
    """Returns the kind of file system of a path, from the kernel's mount table; None if unknown.

    Of several mounts on one place, the last one is visible.
    """
    kind, longest = None, -1
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        place = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), before.split()[4])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= longest:
            kind, longest = after.split()[0], len(place)
    return kind
