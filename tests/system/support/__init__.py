"""What the system tests share: a fork server that kills processes, scripts to kill, promises to check afterwards."""
